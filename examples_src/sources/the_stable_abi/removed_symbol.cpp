namespace c10 {
class StorageImpl;
}
// [symbol]
namespace c10::impl::cow {
void materialize_cow_storage(c10::StorageImpl&);  // in PyTorch 2.11, gone in 2.13
}

extern "C" void write_to(c10::StorageImpl& storage) {
  c10::impl::cow::materialize_cow_storage(storage);
}
// [/symbol]
