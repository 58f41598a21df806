// Ascend C for the CPU: what a source finds in place of CANN's header.
#pragma once

#include <ascendc/blocks.h>
#include <ascendc/copies.h>
#include <ascendc/functions.h>
#include <ascendc/launch.h>
#include <ascendc/reductions.h>
#include <ascendc/selection.h>
#include <ascendc/shapes.h>
#include <ascendc/sorting.h>
#include <ascendc/transposes.h>
#include <ascendc/vector.h>
