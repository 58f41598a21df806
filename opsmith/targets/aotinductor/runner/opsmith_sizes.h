// Sizes of a model's inputs: which a symbol may have, and what an expression over symbols comes to.
#pragma once

#include "opsmith_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace opsmith::detail {

inline bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// What the manifest says of sizes, which has to outlive this.
class Sizes {
 public:
  using Bound = std::map<std::string, int64_t>;
  struct Line {  // a size that is start + step * symbol
    std::string symbol;
    int64_t start = 0;
    int64_t step = 0;
  };

  Sizes(const Json& dims, const Json& expressions) : dims_(dims), expressions_(expressions) {}

  bool allows(const std::string& symbol, int64_t size) const;
  std::string allowed(const std::string& symbol) const;
  std::optional<Line> line(const std::string& expression, const Bound& bound) const;
  std::optional<int64_t> evaluate(const std::string& expression, const Bound& bound) const;
  bool symbols(const std::string& expression, const Bound& bound,
               std::set<std::string>& found) const;

 private:
  const Json& dims_;
  const Json& expressions_;  // in postfix notation
};

inline bool Sizes::allows(const std::string& symbol, int64_t size) const {
  const Json::Array& limits = dims_.at(symbol).array();
  return size >= limits.at(0).integer() &&
         (limits.at(1).is_null() || size <= limits.at(1).integer());
}

inline std::string Sizes::allowed(const std::string& symbol) const {
  const Json::Array& limits = dims_.at(symbol).array();
  return std::to_string(limits.at(0).integer()) + " <= " + symbol +
         (limits.at(1).is_null() ? "" : " <= " + std::to_string(limits.at(1).integer()));
}

// Returns a size as a linear function of its one unbound symbol; empty if it is not linear.
inline std::optional<Sizes::Line> Sizes::line(const std::string& expression,
                                              const Bound& bound) const {
  if (!expressions_.has(expression)) return std::nullopt;
  std::string symbol;
  for (const Json& item : expressions_.at(expression).array()) {
    const std::string& word = item.string();
    if (detail::is_number(word) || word == "+" || word == "-" || word == "*") continue;
    if (bound.count(word) != 0 || word == symbol) continue;
    // Expressions that round or clip are not linear, and two symbols cannot be solved for.
    if (!symbol.empty() || !dims_.has(word)) return std::nullopt;
    symbol = word;
  }
  if (symbol.empty()) return std::nullopt;
  Bound with = bound;
  int64_t found[3] = {};
  for (int64_t i = 0; i < 3; ++i) {
    with[symbol] = i;
    found[i] = evaluate(expression, with).value_or(0);
  }
  const int64_t step = found[1] - found[0];
  if (step == 0 || found[2] - found[1] != step) return std::nullopt;
  return Line{symbol, found[0], step};
}

// Returns the value of a size such as "2*batch", which the manifest writes in postfix notation;
// empty if only PyTorch can evaluate it.
inline std::optional<int64_t> Sizes::evaluate(const std::string& expression,
                                              const Bound& bound) const {
  if (!expressions_.has(expression)) return std::nullopt;
  std::vector<int64_t> stack;
  for (const Json& item : expressions_.at(expression).array()) {
    const std::string& word = item.string();
    if (detail::is_number(word)) {
      stack.push_back(std::stoll(word));
    } else if (const auto found = bound.find(word); found != bound.end()) {
      stack.push_back(found->second);
    } else {
      if (stack.size() < 2) return std::nullopt;
      const int64_t right = stack.back();
      stack.pop_back();
      int64_t& left = stack.back();
      if ((word == "//" || word == "%") && right <= 0) return std::nullopt;
      if (word == "+")
        left += right;
      else if (word == "-")
        left -= right;
      else if (word == "*")
        left *= right;
      else if (word == "//")
        left = left / right - (left % right < 0);
      else if (word == "%")
        left = (left % right + right) % right;
      else if (word == "min")
        left = std::min(left, right);
      else if (word == "max")
        left = std::max(left, right);
      else
        return std::nullopt;
    }
  }
  return stack.size() == 1 ? std::optional(stack[0]) : std::nullopt;
}

// Adds the symbols of an expression to `found`; false if the sizes of some are unknown.
inline bool Sizes::symbols(const std::string& expression, const Bound& bound,
                           std::set<std::string>& found) const {
  if (!expressions_.has(expression)) return false;
  for (const Json& item : expressions_.at(expression).array()) {
    const std::string& word = item.string();
    if (bound.count(word) != 0)
      found.insert(word);
    else if (dims_.has(word))
      return false;
  }
  return true;
}

// Compares by one of == != < <= > >=.
inline bool compare(int64_t left, const std::string& relation, int64_t right) {
  if (relation == "==") return left == right;
  if (relation == "!=") return left != right;
  if (relation == "<") return left < right;
  if (relation == "<=") return left <= right;
  if (relation == ">") return left > right;
  return left >= right;
}

}  // namespace opsmith::detail
