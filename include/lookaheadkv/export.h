// LKV_EXPORT marks the classes and functions that users of the shared library
// may link to; everything else is hidden in it. A class without it compiles
// but does not link in a program of the user's.
#pragma once

#define LKV_EXPORT __attribute__((visibility("default")))
