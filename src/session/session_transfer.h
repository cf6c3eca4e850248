// Sessions as files elsewhere: given to another machine and taken from one.
#pragma once

#include <string>

#include "io/file_system.h"
#include "lookaheadkv/status.h"
#include "session/session_store.h"

namespace lkv {

// Copies the session to a file at `path`, as it is (sealed, if it is), and
// reads the copy back whole.
Status ExportSession(SessionStore& store, const std::string& id,
                     const FileSystem& files, const std::string& path);

// Saves the session in a file at `path` under `owner`, whose it is from then
// on, with a new file id and sealed as the store seals. `master_key` opens it,
// if it is sealed. Returns the id. As SessionReader::Open and BeginSave;
// nothing is kept of a file of which any block is damaged.
Result<std::string> ImportSession(SessionStore& store, const FileSystem& files,
                                  const std::string& path,
                                  const SessionOwner& owner,
                                  const SecretKey* master_key);

}  // namespace lkv
