#pragma once

template <typename T>
T square(T value) {
  return value * value;
}
