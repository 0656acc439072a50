// A GPU for tests, on the CPU: as much of HIP's runtime as the kernels of csrc/ need.
// g++ compiles them with this header in the place of <hip/hip_runtime.h>, and with
// -fsanitize=thread and -fsanitize=alignment: the compiler then calls a function at
// each load and store. gpu_emulator.cpp defines those functions, so the sanitizers' own
// libraries stay out, and every access is checked against the rules of a GPU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace gpu_emulator {

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
int lane();

void barrier(int line);
// The bits that lane `source` sends; its own when `source` lies in another segment.
uint64_t shuffle(uint64_t bits, int source, int width, int line);

void begin_checks();
void run(dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> kernel);

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...) is rewritten to
// launch([=](auto... a) { kernel(a...); }, grid, block, ...)(arguments...).
template <typename Kernel>
auto launch(Kernel kernel, dim3 grid, dim3 block, size_t shared_bytes = 0,
            void* /* stream */ = nullptr) {
  return [=](auto... arguments) {
    run(grid, block, shared_bytes, [=] {
      const auto call = std::bind_front(kernel, arguments...);  // on the thread's stack
      begin_checks();
      call();
    });
  };
}

template <typename T>
T shuffle_value(T value, int source, int width, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const uint64_t bits = shuffle(std::bit_cast<Bits>(value), source, width, line);
  return std::bit_cast<T>(static_cast<Bits>(bits));
}

}  // namespace gpu_emulator

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define threadIdx gpu_emulator::thread_index()
#define blockIdx gpu_emulator::block_index()
#define blockDim gpu_emulator::block_size()
#define gridDim gpu_emulator::grid_size()

using hipStream_t = void*;
using hipError_t = int;
constexpr hipError_t hipSuccess = 0;
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount };
hipError_t hipGetDevice(int* device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int device);
hipError_t hipGetLastError();
const char* hipGetErrorString(hipError_t);

// The last argument is the caller's line: two barriers in the branches of an `if`
// differ.
inline void __syncthreads(int line = __builtin_LINE()) { gpu_emulator::barrier(line); }

template <typename T>
T __shfl_xor(T value, int mask, int width, int line = __builtin_LINE()) {
  return gpu_emulator::shuffle_value(value, gpu_emulator::lane() ^ mask, width, line);
}
template <typename T>
T __shfl_down(T value, int distance, int width, int line = __builtin_LINE()) {
  const int source = gpu_emulator::lane() + distance;
  return gpu_emulator::shuffle_value(value, source, width, line);
}
template <typename T>
T __shfl(T value, int source, int width, int line = __builtin_LINE()) {
  const int segment = gpu_emulator::lane() / width * width;
  return gpu_emulator::shuffle_value(value, segment + source % width, width, line);
}
