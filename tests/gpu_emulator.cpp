// The runtime of gpu_emulator.h. Each GPU thread is a fiber that runs until it waits at
// a shuffle or a barrier; then the first, the last or a random warp that can run goes
// on. A launch fails, as on a GPU, with words for the first rule that was broken:
//   - a barrier that not every thread of the block reaches, a shuffle that not every
//     lane of the warp reaches, a shuffle from a lane that is not there;
//   - an access outside the buffers of the launch, or one that is not aligned;
//   - shared memory that is read before the block has written it;
//   - a race: two threads touch a byte and one writes it, with no barrier in between.
// Not here: atomics, votes, dynamic shared memory, streams, the weak order of memory.
#include "gpu_emulator.h"

#include <ucontext.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

// The linker's names for this library's variables without a value: the shared memory.
extern char __bss_start __attribute__((visibility("hidden")));
extern char _end __attribute__((visibility("hidden")));

namespace gpu_emulator {

namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 65536;
constexpr int kSeveral = -1;

enum class State { kReady, kShuffle, kBarrier, kDone };

struct Thread {
  dim3 index;
  State state;
  int line;    // of the barrier or shuffle it waits at
  int source;  // the lane whose bits it wants
  uint64_t sent, received;
  ucontext_t context;
};

// Who touched a byte last, and when. Time goes on at every barrier and every block.
struct Byte {
  int64_t written = 0, read = 0;
  int writer = 0, reader = 0;
};

struct Memory {
  char* begin;
  char* end;
  bool shared;
  std::vector<Byte> bytes;
};

struct Machine {
  int warp_size = 32;
  std::string order = "ascending";
  std::mt19937 random;
  std::vector<Memory> memories;

  dim3 grid, block, block_index;
  std::function<void()> kernel;
  std::vector<Thread> threads;
  std::unique_ptr<char[]> stacks{new char[kMaxThreads * kStackBytes]};
  ucontext_t scheduler;
  int current = 0;
  bool checking = false;  // else an access is the emulator's or the launcher's own
  int64_t now = 0, block_start = 0, launch_start = 0;
  std::string fault;
};

Machine& machine() {
  static Machine* const only = new Machine;  // on the heap, away from shared memory
  return *only;
}

// ---- How a fiber goes back to the scheduler

void wait(State state, int line) {
  Machine& m = machine();
  Thread& self = m.threads[m.current];
  self.state = state;
  self.line = line;
  m.checking = false;
  swapcontext(&self.context, &m.scheduler);
  m.checking = true;
}

void note_fault(const std::string& what) {
  Machine& m = machine();
  m.fault = what + " (block " + std::to_string(m.block_index.x) + ", thread " +
            std::to_string(m.current) + ")";
}

// For a fiber: the scheduler ends the launch and never resumes it.
void fail(const std::string& what) {
  note_fault(what);
  wait(State::kDone, 0);
}

// ---- Memory

std::string conflict(const Memory& memory, const Byte& byte, bool write) {
  const Machine& m = machine();
  const std::string kind = memory.shared ? "shared memory" : "global memory";
  const auto thread = [](int t) {
    return t == kSeveral ? "several threads" : "thread " + std::to_string(t);
  };
  const std::string touches = (write ? "race: writes " : "race: reads ") + kind;
  if (byte.written == m.now && byte.writer != m.current) {
    return touches + " that " + thread(byte.writer) + " writes";
  }
  if (write && byte.read == m.now && byte.reader != m.current) {
    return touches + " that " + thread(byte.reader) + " reads";
  }
  if (memory.shared) {
    const bool unknown = !write && byte.written < m.block_start;
    return unknown ? "reads shared memory that the block has not written" : "";
  }
  const auto in_another_block = [&](int64_t time) {
    return time >= m.launch_start && time < m.block_start;
  };
  if (in_another_block(byte.written) || (write && in_another_block(byte.read))) {
    return touches + " that another block touches";
  }
  return "";
}

void record(Byte& byte, bool write) {
  const Machine& m = machine();
  if (write) {
    byte.writer = m.current;
    byte.written = m.now;
  } else {
    const bool first = byte.read != m.now || byte.reader == m.current;
    byte.reader = first ? m.current : kSeveral;
    byte.read = m.now;
  }
}

void check_access(char* address, size_t size, bool write) {
  Machine& m = machine();
  const char* stack = m.stacks.get() + m.current * kStackBytes;
  if (address >= stack && address < stack + kStackBytes) return;  // a local variable
  for (Memory& memory : m.memories) {
    if (address < memory.begin || address + size > memory.end) continue;
    for (size_t i = 0; i < size; ++i) {
      Byte& byte = memory.bytes[address - memory.begin + i];
      const std::string what = conflict(memory, byte, write);
      if (!what.empty()) return fail(what);
      record(byte, write);
    }
    return;
  }
  fail(write ? "writes out of bounds" : "reads out of bounds");
}

// ---- The scheduler

void fiber() {
  Machine& m = machine();
  m.kernel();
  m.checking = false;
  m.threads[m.current].state = State::kDone;
  m.threads[m.current].line = 0;
}

void start_block() {
  Machine& m = machine();
  m.block_start = ++m.now;
  for (size_t t = 0; t < m.threads.size(); ++t) {
    Thread& thread = m.threads[t];
    const unsigned row = t / m.block.x;
    thread.index = dim3(t % m.block.x, row % m.block.y, row / m.block.y);
    thread.state = State::kReady;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = m.stacks.get() + t * kStackBytes;
    thread.context.uc_stack.ss_size = kStackBytes;
    thread.context.uc_link = &m.scheduler;
    makecontext(&thread.context, fiber, 0);
  }
}

std::vector<int> lanes_of(int warp) {
  Machine& m = machine();
  std::vector<int> lanes;
  const int end = std::min<int>(m.threads.size(), (warp + 1) * m.warp_size);
  for (int t = warp * m.warp_size; t < end; ++t) lanes.push_back(t);
  if (m.order == "descending") std::reverse(lanes.begin(), lanes.end());
  if (m.order == "random") std::shuffle(lanes.begin(), lanes.end(), m.random);
  return lanes;
}

// Hands the lanes of a warp each other's bits once all of them wait at one shuffle.
void exchange(const std::vector<int>& lanes) {
  Machine& m = machine();
  const int first = lanes[0] / m.warp_size * m.warp_size;
  for (const int t : lanes) {
    m.current = t;
    const Thread& thread = m.threads[t];
    if (thread.state != State::kShuffle || thread.line != m.threads[first].line) {
      return note_fault("divergent shuffle: not every lane of the warp is there");
    }
    if (thread.source >= static_cast<int>(lanes.size())) {
      return note_fault("shuffle from a lane that the warp does not have");
    }
  }
  for (const int t : lanes) {
    m.threads[t].received = m.threads[first + m.threads[t].source].sent;
    m.threads[t].state = State::kReady;
  }
}

// Runs every lane of a warp that can run, up to its next wait.
void run_warp(int warp) {
  Machine& m = machine();
  const std::vector<int> lanes = lanes_of(warp);
  bool shuffles = false;
  for (const int t : lanes) {
    m.current = t;
    if (m.threads[t].state == State::kReady) {
      swapcontext(&m.scheduler, &m.threads[t].context);
    }
    if (!m.fault.empty()) return;
    shuffles |= m.threads[t].state == State::kShuffle;
  }
  if (shuffles) exchange(lanes);
}

std::vector<int> warps_that_can_run() {
  const Machine& m = machine();
  std::vector<int> warps;
  for (size_t t = 0; t < m.threads.size(); ++t) {
    const int warp = t / m.warp_size;
    const bool known = !warps.empty() && warps.back() == warp;
    if (m.threads[t].state == State::kReady && !known) warps.push_back(warp);
  }
  return warps;
}

// Lets the block past a barrier. False once all of its threads are done.
bool pass_barrier() {
  Machine& m = machine();
  const Thread& first = m.threads[0];
  for (const Thread& thread : m.threads) {
    if (thread.state == first.state && thread.line == first.line) continue;
    m.current = &thread - &first;
    note_fault("divergent barrier: not every thread of the block is there");
    return false;
  }
  if (first.state == State::kDone) return false;
  for (Thread& thread : m.threads) thread.state = State::kReady;
  ++m.now;
  return true;
}

void run_block() {
  Machine& m = machine();
  start_block();
  do {
    for (auto warps = warps_that_can_run(); !warps.empty();
         warps = warps_that_can_run()) {
      size_t pick = m.order == "descending" ? warps.size() - 1 : 0;
      if (m.order == "random") pick = m.random() % warps.size();
      run_warp(warps[pick]);
      if (!m.fault.empty()) return;
    }
  } while (pass_barrier());
}

uint64_t count(dim3 size) { return uint64_t{size.x} * size.y * size.z; }

bool can_launch(dim3 grid, dim3 block, size_t shared_bytes) {
  return count(grid) > 0 && grid.x <= INT_MAX && grid.y <= 65535 && grid.z <= 65535 &&
         uint64_t{grid.x} * block.x <= UINT32_MAX &&  // HIP's own rule
         count(block) > 0 && count(block) <= kMaxThreads && shared_bytes == 0;
}

}  // namespace

void run(dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> kernel) {
  Machine& m = machine();
  if (!m.fault.empty()) return;  // nobody has asked for the last error yet
  if (!can_launch(grid, block, shared_bytes)) {
    m.fault = "invalid configuration argument";
    return;
  }
  m.grid = grid;
  m.block = block;
  m.kernel = std::move(kernel);
  m.threads.resize(count(block));
  m.launch_start = m.now + 1;
  for (uint64_t b = 0; b < count(grid) && m.fault.empty(); ++b) {
    m.block_index = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
    run_block();
  }
}

void begin_checks() { machine().checking = true; }

dim3 thread_index() { return machine().threads[machine().current].index; }
dim3 block_index() { return machine().block_index; }
dim3 block_size() { return machine().block; }
dim3 grid_size() { return machine().grid; }
int lane() { return machine().current % machine().warp_size; }

void barrier(int line) { wait(State::kBarrier, line); }

uint64_t shuffle(uint64_t bits, int source, int width, int line) {
  Thread& self = machine().threads[machine().current];
  self.sent = bits;
  self.source = source / width == lane() / width ? source : lane();
  wait(State::kShuffle, line);
  return self.received;
}

}  // namespace gpu_emulator

hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t, int) {
  *value = 3;  // few: blocks that walk from row to row walk far
  return hipSuccess;
}

hipError_t hipGetLastError() {
  return gpu_emulator::machine().fault.empty() ? hipSuccess : 1;
}

const char* hipGetErrorString(hipError_t) {
  static std::string* const last = new std::string;
  *last = std::exchange(gpu_emulator::machine().fault, {});
  return last->c_str();
}

// ---- What the test calls, before each launch

extern "C" void gpu_emulator_reset(int warp_size, const char* order, unsigned seed) {
  auto& m = gpu_emulator::machine();
  m.warp_size = warp_size;
  m.order = order;
  m.random.seed(seed);
  m.fault.clear();
  m.memories.clear();
  m.memories.push_back({&__bss_start, &_end, true, {}});
  m.memories.back().bytes.resize(&_end - &__bss_start);
}

extern "C" void gpu_emulator_memory(char* begin, int64_t bytes) {
  auto& memories = gpu_emulator::machine().memories;
  memories.push_back({begin, begin + bytes, false, {}});
  memories.back().bytes.resize(bytes);
}

// ---- What the compiler calls: see tsan_interface.h and ubsan_handlers.h of LLVM

static void on_access(void* address, size_t size, bool write) {
  auto& m = gpu_emulator::machine();
  if (!std::exchange(m.checking, false)) return;
  gpu_emulator::check_access(static_cast<char*>(address), size, write);
  m.checking = true;
}

#define DEFINE_ACCESS(size)                                                \
  void __tsan_read##size(void* p) { on_access(p, size, false); }           \
  void __tsan_write##size(void* p) { on_access(p, size, true); }           \
  void __tsan_unaligned_read##size(void* p) { on_access(p, size, false); } \
  void __tsan_unaligned_write##size(void* p) { on_access(p, size, true); }
extern "C" {
DEFINE_ACCESS(1)
DEFINE_ACCESS(2)
DEFINE_ACCESS(4)
DEFINE_ACCESS(8)
DEFINE_ACCESS(16)
void __tsan_read_range(void* p, size_t size) { on_access(p, size, false); }
void __tsan_write_range(void* p, size_t size) { on_access(p, size, true); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __ubsan_handle_type_mismatch_v1(void*, void* address) {
  auto& m = gpu_emulator::machine();
  if (std::exchange(m.checking, false)) {
    gpu_emulator::fail("access that is not aligned to its type");
  }
}
}
