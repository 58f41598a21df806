// cuBLAS in single precision: a thread of the device for each element of a result, so that accesses
// are watched as a kernel's. The rest is declared, and refused where it is called.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <emulated/algorithms.h>

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_INITIALIZED,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };
enum cudaDataType { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType_t = cudaDataType;
using cublasHandle_t = struct cublasContext*;

inline cublasStatus_t cublasCreate(cublasHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}

namespace emulated {

// A matrix in columns, or its transpose, of each product of a batch.
struct Matrix {
  const float* data;
  long long step, batch_step;
  bool transposed;
  const float& at(uint64_t batch, uint64_t row, uint64_t column) const {
    return data[batch * batch_step + (transposed ? row * step + column : column * step + row)];
  }
};

// c = alpha a b + beta c, where the elements of c are `row_step` and `step` apart.
inline cublasStatus_t multiply(const char* what, uint64_t m, uint64_t n, uint64_t k, float alpha,
                               Matrix a, Matrix b, float beta, float* c, uint64_t row_step,
                               uint64_t step, uint64_t batch_step, uint64_t batches, Place place) {
  on_device(
      what, m * n * batches,
      [=](uint64_t item) {
        const uint64_t row = item % m, column = item / m % n, batch = item / m / n;
        float sum = 0;
        for (uint64_t i = 0; i < k; ++i) sum += a.at(batch, row, i) * b.at(batch, i, column);
        float& to = c[batch * batch_step + row * row_step + column * step];
        to = alpha * sum + (beta == 0 ? 0 : beta * to);
      },
      place);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emulated

inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t of_a,
                                                cublasOperation_t of_b, int m, int n, int k,
                                                const float* alpha, const float* a, int lda,
                                                long long step_a, const float* b, int ldb,
                                                long long step_b, const float* beta, float* c,
                                                int ldc, long long step_c, int batches,
                                                emulated::Place place = emulated::here()) {
  return emulated::multiply(
      "cublasSgemmStridedBatched", m, n, k, *alpha, {a, lda, step_a, of_a != CUBLAS_OP_N},
      {b, ldb, step_b, of_b != CUBLAS_OP_N}, *beta, c, 1, ldc, step_c, batches, place);
}
inline cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t of_a, cublasOperation_t of_b,
                                  int m, int n, int k, const float* alpha, const float* a, int lda,
                                  const float* b, int ldb, const float* beta, float* c, int ldc,
                                  emulated::Place place = emulated::here()) {
  return emulated::multiply("cublasSgemm", m, n, k, *alpha, {a, lda, 0, of_a != CUBLAS_OP_N},
                            {b, ldb, 0, of_b != CUBLAS_OP_N}, *beta, c, 1, ldc, 0, 1, place);
}
inline cublasStatus_t cublasSgemv(cublasHandle_t, cublasOperation_t of_a, int m, int n,
                                  const float* alpha, const float* a, int lda, const float* x,
                                  int incx, const float* beta, float* y, int incy,
                                  emulated::Place place = emulated::here()) {
  const bool transposed = of_a != CUBLAS_OP_N;
  return emulated::multiply("cublasSgemv", transposed ? n : m, 1, transposed ? m : n, *alpha,
                            {a, lda, 0, transposed}, {x, incx, 0, true}, *beta, y, incy, 0, 0, 1,
                            place);
}

// The place is the caller's, as these are not inlined.
#define OPSMITH_NOT_EMULATED(name)                             \
  template <typename... T>                                     \
  __attribute__((noinline)) cublasStatus_t name(const T&...) { \
    emulated::not_emulated(#name, OPSMITH_HERE);               \
  }
OPSMITH_NOT_EMULATED(cublasGemmEx)
OPSMITH_NOT_EMULATED(cublasGemmStridedBatchedEx)
