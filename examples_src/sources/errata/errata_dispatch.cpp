// Which element types a dispatch over AT_FLOATING_TYPES knows.
#include <torch/headeronly/core/Dispatch_v2.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdio>

// [dispatch]
void print_size(torch::headeronly::ScalarType type) {
  THO_DISPATCH_V2(type, "my_op",
                  AT_WRAP([&] { std::printf("%zu bytes\n", sizeof(scalar_t)); }),
                  AT_EXPAND(AT_FLOATING_TYPES));
}

int main() {
  print_size(torch::headeronly::ScalarType::Float);
  print_size(torch::headeronly::ScalarType::Half);
}
// [/dispatch]
