// A stand-in for CANN's header, for tests alone.
#pragma once

typedef void* aclrtStream;
