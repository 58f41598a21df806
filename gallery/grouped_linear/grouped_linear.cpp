#include "grouped_linear.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../products.h"
#include "grouped_linear_backward.h"

namespace {

using gallery::BlockProduct, gallery::kBlockColumns, gallery::kBlockRows, gallery::Matrix,
    gallery::narrow, gallery::Sum;

// Rows `first` to `first + rows` of an expert's result, and as many of its columns.
struct Block {
  int64_t expert, first, rows, column, columns;
};

// The blocks of a matrix of `height` x `width` for each expert.
template <typename S>
class Blocks {
 public:
  void add(int64_t expert, int64_t first, int64_t height, int64_t width) {
    for (int64_t i = 0; i < height; i += kBlockRows<S>) {
      for (int64_t j = 0; j < width; j += kBlockColumns) {
        blocks_.push_back({expert, first + i, std::min(height - i, kBlockRows<S>), j,
                           std::min(width - j, kBlockColumns)});
      }
    }
  }

  // Calls f(block, product, memory for its result) for each block, on all threads.
  template <typename F>
  void for_each(const opsmith::Context& ctx, F f) const {
    const auto count = static_cast<int64_t>(blocks_.size());
    ctx.parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      const BlockProduct<S> product(ctx);
      S* result = ctx.scratch<S>(kBlockRows<S> * kBlockColumns).data();
      for (int64_t i = begin; i < end; ++i) f(blocks_[i], product, result);
    });
  }

 private:
  std::vector<Block> blocks_;
};

// Rounds the result of a block into a matrix with rows of `width` elements.
template <typename T>
void write(const Sum<T>* result, const Block& block, int64_t width, T* to) {
  for (int64_t i = 0; i < block.rows; ++i) {
    narrow(result + i * kBlockColumns, block.columns,
           to + (block.first + i) * width + block.column);
  }
}

template <typename T>
Matrix<T> matrix_of(const opsmith::Tensor<const T>& weight, int64_t expert) {
  return {weight.data() + expert * weight.stride(0), weight.stride(1), weight.stride(2)};
}

}  // namespace

template <typename T>
void grouped_linear(const opsmith::Context& ctx, const llm::grouped_linear_args<T>& a) {
  using S = Sum<T>;
  Blocks<S> blocks;
  for (int64_t e = 0; e < a.E; ++e) {
    blocks.add(e, a.offsets[e], a.offsets[e + 1] - a.offsets[e], a.N);
  }
  const Matrix<T> x = {a.x.data(), a.K, 1};
  blocks.for_each(ctx, [&](const Block& block, const BlockProduct<S>& product, S* result) {
    product(x.at(block.first, 0), matrix_of(a.weight, block.expert).at(0, block.column), block.rows,
            block.columns, a.K, result);
    write(result, block, a.N, a.out.data());
  });
}
OPSMITH_KERNEL(llm, grouped_linear, cpu, float, double, opsmith::half, opsmith::bfloat16)

template <typename T>
void grouped_linear_backward(const opsmith::Context& ctx,
                             const llm::grouped_linear_backward_args<T>& a) {
  using S = Sum<T>;
  const Matrix<T> x = {a.x.data(), a.K, 1}, grad = {a.grad.data(), a.N, 1};
  Blocks<S> of_x, of_weight;
  for (int64_t e = 0; e < a.E; ++e) {
    of_x.add(e, a.offsets[e], a.offsets[e + 1] - a.offsets[e], a.K);
    of_weight.add(e, 0, a.K, a.N);
  }
  of_x.for_each(ctx, [&](const Block& block, const BlockProduct<S>& product, S* result) {
    const Matrix<T> weight = matrix_of(a.weight, block.expert).transposed();
    product(grad.at(block.first, 0), weight.at(0, block.column), block.rows, block.columns, a.N,
            result);
    write(result, block, a.K, a.out0.data());
  });
  of_weight.for_each(ctx, [&](const Block& block, const BlockProduct<S>& product, S* result) {
    const int64_t begin = a.offsets[block.expert], end = a.offsets[block.expert + 1];
    product(x.at(begin, block.first).transposed(), grad.at(begin, block.column), block.rows,
            block.columns, end - begin, result);
    write(result, block, a.N, a.out1.data() + block.expert * a.K * a.N);
  });
}
OPSMITH_KERNEL(llm, grouped_linear_backward, cpu, float, double, opsmith::half, opsmith::bfloat16)
