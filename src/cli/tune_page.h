// What `lkv tune` found, as one HTML page that needs nothing beside itself: two
// charts as SVG and the table that they show. Pure.
#pragma once

#include <string>

#include "cli/tune_report.h"

namespace lkv::cli {

std::string TunePage(const TuneReport& report);

}  // namespace lkv::cli
