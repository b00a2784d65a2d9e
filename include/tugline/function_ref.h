// SPDX-License-Identifier: Apache-2.0
// A reference to something callable, for parameters that are called before the function returns.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace tugline {

template <class Signature>
class FunctionRef;

/// Two words, no allocation, trivially copyable. Does not own the callable: it must outlive the calls, which
/// a temporary lambda in the argument list does.
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_object_v<std::remove_reference_t<Callable>> &&
           std::is_invocable_r_v<Result, Callable&, Args...>) FunctionRef(Callable&& callable)
  noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return std::invoke(*static_cast<std::remove_reference_t<Callable>*>(object),
                             std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace tugline
