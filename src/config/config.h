// The configuration as plain structs. config/schema.yaml documents every key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "base/os/beneath.h"
#include "core/device_type.h"
#include "core/numerics.h"
#include "core/precision.h"
#include "core/products.h"

namespace evn {

struct DeviceConfig {
  std::string name;
  std::string type;
  std::uint64_t memory_limit = UINT64_MAX;
  std::uint64_t cache_limit = UINT64_MAX;  // of blocks that the pool keeps for later
  std::uint64_t trim = 0;                  // the index of a word of kTrimWords
  bool optional = false;
  Precision precision = Precision::kDefault;
  Products products = Products::kDefault;
  DeviceSettings settings;  // of the type's own options
  int line = 0;
};

enum class Policy { kRequire, kPrefer, kForbid };

// What a search for the placement makes small: the time of one run, the time of the busiest device, the memory of all devices.
enum class Objective { kLatency, kThroughput, kMemory };

// What stands in the place of names of devices where the placement is searched for.
inline constexpr char kAutoDevice[] = "auto";

// That share one node.
inline constexpr std::size_t kMostSplitDevices = 8;

struct PlacementRule {
  std::vector<std::string> ops;     // operator names; empty: any
  std::vector<std::string> names;   // globs over node names; empty: any
  std::vector<std::string> models;  // globs over the model's file name without its folder ("" for a buffer); empty: any
  std::vector<std::string>
      devices;  // names of `devices`, or "cpu": the first that can; empty: `split`, or how nodes are computed alone
  std::vector<std::string> split;  // in the place of `devices`: those that share each node; {kAutoDevice}: all, where it pays
  Policy policy = Policy::kRequire;
  Precision precision = Precision::kDefault;
  Numerics numerics = Numerics::kDefault;
  Products products = Products::kDefault;
  int line = 0;
};

// Where packed constants of models are kept from one process to the next.
struct CacheConfig {
  std::string file;   // "": nowhere. One that ends in / is a folder, with a file for each model
  bool write = true;  // when it lacks something
  bool map = false;   // use the file's bytes where they lie
};

inline constexpr int kDefaultMaxBatch = 8;
inline constexpr int kMostMaxBatch = 65536;

// How requests of a session are joined to batches (evn_batching_options).
struct BatchingConfig {
  int max_batch = 0;  // 0: they are not
  std::uint64_t max_delay_ns = 0;
  std::string mask;                   // "": none
  std::vector<std::int64_t> buckets;  // of lengths, in rising order

  // What is wrong with mask and buckets; nullptr: nothing.
  const char* why_wrong() const;
};

// What sessions are made with that say nothing else.
struct SessionConfig {
  Precision precision = Precision::kDefault;
  std::vector<std::string> keep_fp32;  // nodes that stay float32: globs of names, or "type:Softmax"
  Numerics numerics = Numerics::kDefault;
  Products products = Products::kDefault;
  int concurrency = 0;  // runs that compute at a time; 0: as many as there are cores
  BatchingConfig batching;
  std::uint64_t idle_arena_bytes = std::uint64_t{1} << 30;  // of intermediate values, kept for runs to come
  MemoryPlan memory = MemoryPlan::kDefault;
  bool share_arenas = false;  // sessions of the runtime keep one set of them
};

// Inputs of runs that are written into files.
struct RecordingConfig {
  std::string folder;        // "": none are
  std::uint64_t runs = 100;  // the latest of a session, whose files are kept
};

// A run with zeros that readies a session for its shapes.
struct WarmRun {
  struct Input {
    std::string name;
    std::vector<std::int64_t> dims;
  };
  std::vector<Input> inputs;
  int line = 0;
};

// A model that the host asks for by name, and what its session is made with.
struct ModelConfig {
  std::string name;
  std::string path;                  // below Config::folder, without parts that are . or ..
  std::vector<std::string> devices;  // as Config::default_devices; empty: the configuration's
  SessionConfig session;             // what is 0, empty or the default in it is the configuration's
  std::optional<CacheConfig> cache;  // its file is below Config::folder too; none: the configuration's
  std::vector<std::string> disabled_passes;
  std::vector<std::string> overridable;  // inputs with a default that runs are going to give
  std::vector<WarmRun> warm;
  int line = 0;
};

// Drivers are tried by a process of their own before this one asks them for devices.
struct ProbeConfig {
  std::string program;                       // the `evener` command; "": they are not
  std::uint64_t timeout_ns = 5'000'000'000;  // for each set of drivers that is tried
};

struct Config {
  std::string source;  // file name for messages, "<text>" or ""
  Limits limits;
  std::vector<DeviceConfig> devices;
  // Where nodes go that no rule places: names of `devices`, or "cpu": the first that can. {kAutoDevice}: searched for by measured
  // costs. Empty: the CPU, and what must not run there goes to the first other device that can.
  std::vector<std::string> default_devices;
  std::vector<std::string> split_devices;  // that share the rows of a run's batch; empty: none do
  int split_line = 0;
  Objective objective = Objective::kLatency;
  bool measure_costs = true;            // those that a search lacks
  bool moves_off_lost_devices = false;  // sessions are placed anew on the other devices when one is lost; else runs fail
  int default_line = 0;
  CacheConfig cache;
  RecordingConfig recording;
  os::FileAccess files;  // of all models of the runtime
  ProbeConfig probe;
  std::vector<PlacementRule> rules;
  SessionConfig session;
  std::vector<std::string> disabled_passes;  // of rewrites and of what is done across nodes
  int passes_line = 0;
  std::string folder;  // of the file, absolute: where paths of models begin; set where there are models
  std::vector<ModelConfig> models;

  const DeviceConfig* find_device(const std::string& name) const;
};

// Parses YAML for devices of the types that there are. Throws EVN_ERROR_CONFIG "source:line:column: ..." with the nearest valid key
// where one was mistyped, and EVN_ERROR_LIMIT for more than 1 MiB.
Config parse_config(const std::string& text, const std::string& source, std::span<const DeviceType> types);

// Reads and parses a file, from whose folder on relative paths in it are. EVN_ERROR_IO too; never blocks on what is no regular
// file. Paths in a text begin where the process is.
Config load_config(const std::string& path, std::span<const DeviceType> types);

}  // namespace evn
