// The devices of the backend, their streams and their events. A stream is a queue of
// tasks with a thread that runs them; on hardware, each function calls the driver.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "bring_a_backend.h"

namespace backend {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// [devices]
constexpr c10::DeviceIndex kDevices = 2;
thread_local c10::DeviceIndex current = 0;

c10::DeviceIndex exchange(c10::DeviceIndex index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "opbook: expected a device index below ",
              static_cast<int>(kDevices), ", but got ", static_cast<int>(index));
  return std::exchange(current, index);  // hardware: its set_device
}
// [/devices]

class Queue {
 public:
  void push(std::function<void()> task) {
    std::deque<std::function<void()>> done;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (pushed_++ == 0) std::thread([this] { run(); }).detach();
    todo_.push_back(std::move(task));
    done.swap(done_);
    changed_.notify_all();
  }

  void wait() {  // for all that was pushed before
    std::deque<std::function<void()>> done;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, last = pushed_] { return ran_ >= last; });
    done.swap(done_);
    if (error_) std::rethrow_exception(std::exchange(error_, {}));
  }

  bool idle() {
    const std::lock_guard lock(mutex_);
    return ran_ == pushed_;
  }

 private:
  void run() {
    for (std::unique_lock lock(mutex_);; changed_.notify_all()) {
      changed_.wait(lock, [this] { return !todo_.empty(); });
      std::function<void()> task = std::move(todo_.front());
      todo_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) error_ = error;  // raised where somebody waits, as on a GPU
      // The task owns tensors. To free one may need Python's lock, which the threads
      // that push or wait can get and this one must not wait for.
      done_.push_back(std::move(task));
      ++ran_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> todo_, done_;
  std::exception_ptr error_;
  uint64_t pushed_ = 0, ran_ = 0;
};

// [streams]
constexpr c10::StreamId kStreams = 4;  // the default one and a pool
thread_local std::array<c10::StreamId, kDevices> current_stream{};

const pid_t owner = getpid();

Queue& queue(c10::Stream stream) {
  TORCH_CHECK(getpid() == owner,
              "opbook: a forked process has no threads for streams; ",
              "start it with the method 'spawn'");
  static auto* queues = new std::array<std::array<Queue, kStreams>, kDevices>;
  return queues->at(stream.device_index()).at(stream.id());
}

c10::Stream stream_at(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id);
}

c10::Stream stream_of(c10::Device device) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : current;
  return stream_at(index, current_stream.at(index));
}
// [/streams]

using Clock = std::chrono::steady_clock;
using Event = std::shared_future<Clock::time_point>;

// [guard]
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, exchange(device.index())};
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override { exchange(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  // [/guard]

  // [guard streams]
  c10::Stream getStream(c10::Device device) const override { return stream_of(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_at(device.has_index() ? device.index() : current, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<uint64_t> next = 0;
    const auto id = static_cast<c10::StreamId>(1 + next++ % (kStreams - 1));
    return stream_at(device.has_index() ? device.index() : current, id);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = stream_of(stream.device());
    current_stream.at(stream.device_index()) = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return queue(stream).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    queue(stream).wait();
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    for (c10::StreamId id = 0; id < kStreams; ++id) queue(stream_at(index, id)).wait();
  }
  // [/guard streams]

  // [guard events]
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    auto reached = std::make_shared<std::promise<Clock::time_point>>();
    *static_cast<Event*>(*event) = reached->get_future().share();
    queue(stream).push([reached] { reached->set_value(Clock::now()); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;  // nothing was recorded
    queue(stream).push([reached = *static_cast<Event*>(event)] { reached.wait(); });
  }
  bool queryEvent(void* event) const override {
    const auto now = std::chrono::seconds(0);
    return static_cast<Event*>(event)->wait_for(now) == std::future_status::ready;
  }
  void synchronizeEvent(void* event) const override {
    static_cast<Event*>(event)->wait();
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    const auto passed =
        static_cast<Event*>(to)->get() - static_cast<Event*>(from)->get();
    return std::chrono::duration<double, std::milli>(passed).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  // [/guard events]
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

void launch(std::function<void()> task) {
  queue(stream_of({kType, current})).push(std::move(task));
}

}  // namespace backend
