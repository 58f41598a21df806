// Ascend C for the CPU: what a source finds in place of CANN's header.
#pragma once

#include <ascendc/copies.h>
#include <ascendc/launch.h>
#include <ascendc/reductions.h>
#include <ascendc/selection.h>
#include <ascendc/vector.h>
