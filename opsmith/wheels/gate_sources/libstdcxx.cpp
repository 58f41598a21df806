// What headers of a new libstdc++ ask for, and the library of an older system does not have. It is
// the gate's own; nothing else of the process sees it.
#include <new>

#define OWN __attribute__((visibility("hidden")))

namespace std {

// Came with GCC 11.
OWN void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

// Came with GCC 13. PyTorch has set the streams up before a gate is loaded.
OWN void ios_base_library_init();
void ios_base_library_init() {}

}  // namespace std
