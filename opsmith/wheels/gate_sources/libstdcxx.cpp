// Functions that headers of a new libstdc++ use and an older system's library lacks. They are
// private to the gate; the rest of the process does not see them. They are weak: where the compiler
// links its library statically, that has them too.
#include <new>

#define OWN __attribute__((weak, visibility("hidden")))

namespace std {

// New in GCC 11.
OWN void __throw_bad_array_new_length();
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

// New in GCC 13. PyTorch has initialized the streams before a gate is loaded.
OWN void ios_base_library_init();
void ios_base_library_init() {}

}  // namespace std
