// The names of the files of a SessionStore.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "io/folder.h"

namespace lkv {

inline constexpr std::string_view kSessionSuffix = ".session";
inline constexpr std::string_view kDraftSuffix = ".draft";
inline constexpr std::string_view kCatalogueName = "catalogue.db";
inline constexpr std::string_view kCatalogueJournalName =
    "catalogue.db-journal";

inline constexpr size_t kSessionIdDigits = 32;

inline bool IsSessionId(std::string_view id) {
  return id.size() == kSessionIdDigits &&
         id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

inline std::string SessionFileName(std::string_view id) {
  return std::string(id) + std::string(kSessionSuffix);
}

// The id in the name of a session's file; empty for any other.
inline std::string SessionIdIn(std::string_view file_name) {
  if (!file_name.ends_with(kSessionSuffix)) return "";
  file_name.remove_suffix(kSessionSuffix.size());
  return IsSessionId(file_name) ? std::string(file_name) : "";
}

// Whether this is the name of a session under way.
inline bool IsDraftName(std::string_view file_name) {
  if (!file_name.ends_with(kDraftSuffix)) return false;
  file_name.remove_suffix(kDraftSuffix.size());
  return IsSessionId(file_name);
}

// Null if the folder has no such file. Requires the order of Folder::List.
inline const FolderEntry* FindEntry(const std::vector<FolderEntry>& entries,
                                    std::string_view name) {
  const auto it =
      std::lower_bound(entries.begin(), entries.end(), name,
                       [](const FolderEntry& entry, std::string_view n) {
                         return entry.name < n;
                       });
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

}  // namespace lkv
