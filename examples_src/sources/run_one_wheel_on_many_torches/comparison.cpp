// What PyTorch's headers use of C++20 since 2.14, in a class of our own.
#include <compare>

struct Handle {
  const void* target;
};

std::strong_ordering operator<=>(const Handle& left, const Handle& right) {
  return left.target <=> right.target;
}
