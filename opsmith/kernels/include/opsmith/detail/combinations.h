// The combinations of element types that a kernel is compiled for, as a type.
#pragma once

#include <opsmith/detail/dtypes.h>
#include <opsmith/detail/text.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace opsmith {

// One element type for each dtype variable of an operator.
template <typename... Types>
struct types {};

namespace detail {

template <typename... Combinations>
struct list {};

template <typename T>
struct as_types {
  using type = types<T>;
};
template <typename... T>
struct as_types<types<T...>> {
  using type = types<T...>;
};
// From `float, double`, or from `types<float, int32_t>, types<double, int64_t>`.
template <typename... T>
using of_types = list<typename as_types<T>::type...>;

struct NoSuchDtypes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Lists>
struct concatenated {
  using type = list<>;
};
template <typename... A, typename... Rest>
struct concatenated<list<A...>, Rest...> {
  template <typename... B>
  static list<A..., B...> join(list<B...>);
  using type = decltype(join(typename concatenated<Rest...>::type()));
};

template <typename Combination, typename... Next>
struct extended;
template <typename... Before, typename... Next>
struct extended<types<Before...>, Next...> {
  using type = list<types<Before..., Next>...>;
};

// Every choice of one type from each group; a group is a function type with them as parameters.
template <typename Combinations, typename... Groups>
struct product {
  using type = Combinations;
};
template <typename... Before, typename... Group, typename... Groups>
struct product<list<Before...>, void(Group...), Groups...>
    : product<typename concatenated<typename extended<Before, Group...>::type...>::type,
              Groups...> {};
template <typename... Groups>
using of_groups = typename product<list<types<>>, Groups...>::type;

template <typename... Types>
std::string name_of(types<Types...>) {
  std::string name;
  ((name += name.empty() ? "" : "+", name += dtype_traits<Types>::name), ...);
  return name;
}

template <typename... Combinations>
std::string names_of(list<Combinations...>) {
  std::string names;
  ((names += names.empty() ? "" : ", ", names += name_of(Combinations())), ...);
  return names;
}

// Stands for a dtype variable that no argument of the call bound: any type will do.
inline constexpr uint32_t any_dtype = ~uint32_t{0};

// An exact build compiles the combination that is compared, and no other: those for half precision
// may read bits.
#ifdef OPSMITH_EXACT_ONLY
inline constexpr uint32_t exact_only[] = {OPSMITH_EXACT_ONLY};
template <typename... Types>
constexpr bool is_left_out() {
  constexpr uint32_t keys[] = {dtype_traits<Types>::key...};
  return !std::equal(std::begin(keys), std::end(keys), std::begin(exact_only),
                     std::end(exact_only));
}
#else
template <typename... Types>
constexpr bool is_left_out() {
  return false;
}
#endif

template <typename Body, typename... Types, std::size_t... I>
bool run_if(types<Types...>, std::index_sequence<I...>, const uint32_t* keys, Body&& body) {
  const bool fits = !is_left_out<Types...>() &&
                    ((keys[I] == dtype_traits<Types>::key || keys[I] == any_dtype) && ...);
  if constexpr (!is_left_out<Types...>()) {
    if (fits) body.template operator()<Types...>();
  }
  return fits;
}

template <typename... Types>
constexpr std::size_t length(types<Types...>) {
  return sizeof...(Types);
}

// Calls body.operator()<Types...>() with the first combination that has the dtypes in `chosen`.
template <typename First, typename... Rest, typename Body>
void dispatch(list<First, Rest...> combinations, const DLDataType* chosen, const char* device,
              Body&& body) {
  constexpr std::size_t count = length(First());
  constexpr auto positions = std::make_index_sequence<count>();
  uint32_t keys[count];
  for (std::size_t i = 0; i < count; ++i)
    keys[i] = chosen[i].lanes == 0 ? any_dtype : dtype_key(chosen[i]);
  const bool found =
      run_if(First(), positions, keys, body) || (run_if(Rest(), positions, keys, body) || ...);
  if (found) return;
  std::string wanted;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) wanted += "+";
    wanted += keys[i] == any_dtype ? "any" : dtype_name(chosen[i]);
  }
  throw NoSuchDtypes(
      join("the ", device, " kernel has no ", wanted, "; it has ", names_of(combinations)));
}

}  // namespace detail
}  // namespace opsmith
