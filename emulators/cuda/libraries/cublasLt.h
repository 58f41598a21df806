// cuBLASLt, which is declared, so that programs compile, and not emulated.
#pragma once

#include <cublas_v2.h>

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque*;
struct cublasLtMatmulHeuristicResult_t {
  int algo, state;
};
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT,
  CUBLASLT_EPILOGUE_BIAS,
  CUBLASLT_EPILOGUE_GELU,
  CUBLASLT_EPILOGUE_GELU_BIAS,
  CUBLASLT_EPILOGUE_DGELU,
  CUBLASLT_EPILOGUE_GELU_AUX,
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
  CUBLASLT_EPILOGUE_BGRADB
};
enum cublasLtAttribute_t {
  CUBLASLT_MATMUL_DESC_TRANSA,
  CUBLASLT_MATMUL_DESC_TRANSB,
  CUBLASLT_MATMUL_DESC_EPILOGUE,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
};

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
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
