// cuBLASLt, which is declared, so that programs compile, and not emulated.
#pragma once

#include <cublas_v2.h>

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque*;
struct cublasLtMatmulAlgo_t {};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
};
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,
  CUBLASLT_EPILOGUE_DGELU = 64,
  CUBLASLT_EPILOGUE_GELU_AUX = 160,
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
  CUBLASLT_EPILOGUE_BGRADB = 512,
};
enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};
enum cublasLtMatmulPreferenceAttributes_t { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 };

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
OPSMITH_NOT_EMULATED(cublasLtMatmul)
OPSMITH_NOT_EMULATED(cublasLtMatmulAlgoGetHeuristic)
OPSMITH_NOT_EMULATED(cublasLtMatmulDescCreate)
OPSMITH_NOT_EMULATED(cublasLtMatmulDescDestroy)
OPSMITH_NOT_EMULATED(cublasLtMatmulDescSetAttribute)
OPSMITH_NOT_EMULATED(cublasLtMatmulPreferenceCreate)
OPSMITH_NOT_EMULATED(cublasLtMatmulPreferenceDestroy)
OPSMITH_NOT_EMULATED(cublasLtMatmulPreferenceSetAttribute)
OPSMITH_NOT_EMULATED(cublasLtMatrixLayoutCreate)
OPSMITH_NOT_EMULATED(cublasLtMatrixLayoutDestroy)
OPSMITH_NOT_EMULATED(cublasLtMatrixLayoutSetAttribute)
