// The entry into a kernel through its C symbol.
#pragma once

#include <opsmith/context.h>
#include <opsmith/detail/combinations.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>

namespace opsmith::detail {

inline void fail(const opsmith_context* context, std::string_view message) {
  context->fail(context->self, message.data(), message.size());
}

// Throws if the caller's structs do not fit those that this kernel was compiled with. `Raw` is the
// operator's struct; only the heads of both structs are read.
template <typename Raw>
void require_same_interface(const raw_head& caller, const opsmith_context& context) {
  // A caller of a later release may have more fields at the end of the context.
  const bool same = caller.version == interface_version && context.version == interface_version;
  if (same && context.size >= least_context_size && caller.size == sizeof(Raw)) [[likely]] {
    return;
  }
  const std::string_view kernel = Raw::opsmith_release;
  if (same && context.size >= least_context_size) {
    throw std::runtime_error(
        join("the kernel was compiled for arguments that take ", sizeof(Raw),
             " bytes, and is called with ", caller.size,
             ": the operator's declaration has changed since. Build the kernel's library "
             "again."));
  }
  const std::string_view release = caller.opsmith;
  throw std::runtime_error(join("the kernel's library was built by opsmith ", kernel,
                                " (kernel interface ", interface_version, ", a context of ",
                                least_context_size, " bytes), and is called by opsmith ", release,
                                " (kernel interface ", caller.version, ", a context of ",
                                context.size, " bytes). Build the library again with opsmith ",
                                release, ", or call it by opsmith ", kernel, "."));
}

// The check of values of a call's tensors that the host cannot read; <op>.h specializes it for an
// operator with such a check, when a CUDA compiler compiles it.
template <typename Raw>
struct Guarded {
  Guarded(const Raw& given, const Context&) : raw_(given) {}
  const Raw& raw() const { return raw_; }
  void end() {}

 private:
  const Raw& raw_;
};

// Runs a kernel for the C interface, which no exception may cross.
template <typename Raw, typename Body>
int32_t enter(const Raw* raw, const opsmith_context* context, Body&& body) noexcept {
  try {
    require_same_interface<Raw>(raw->opsmith_head, *context);
    body(Context(context));
    return 0;
  } catch (const AnyOutput::allocation_failed&) {
  } catch (const std::bad_alloc&) {
    fail(context, "out of memory");
  } catch (const NoSuchDtypes& error) {
    fail(context, error.what());
    return no_such_dtypes;
  } catch (const std::exception& error) {
    fail(context, error.what());
  } catch (...) {
    fail(context, "the kernel threw something that is not a std::exception");
  }
  return 1;
}

}  // namespace opsmith::detail
