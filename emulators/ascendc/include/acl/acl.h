// The host's names that launches of Ascend C use.
#pragma once

using aclrtStream = void*;
