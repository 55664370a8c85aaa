// The plain bytes of a model's constants, which take as much memory as the packed copies that kernels read instead. They stay in
// the model's file until somebody wants them, are let go when all that read a constant have packed copies, and are brought back
// from the file. docs/decisions/0019.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "base/mutex.h"
#include "core/graph.h"

namespace evn {

struct LoadedModel;

class PlainWeights {
  struct State {
    bool kept = false;
    bool has_checksum = false;
    std::uint64_t checksum = 0;  // of the bytes, when they were last read
  };

 public:
  // Smaller ones stay: they are not worth it, and kernels look at the values of small constants whenever they like.
  static constexpr std::size_t kLeastBytes = 16 << 10;

  // While one lives, bytes are neither let go nor brought back by anybody else.
  class Access {
   public:
    explicit Access(const LoadedModel& model);
    // Whether the weight's bytes may ever be let go.
    bool may_go(const Weight& weight) const;
    // Returns true if models of bodies can bring back the weight's bytes by themselves.
    static bool may_go_in_bodies(const LoadedModel& model, const Weight& weight);
    // Makes the bytes be there. Throws EVN_ERROR_IO when the file has changed or cannot be read, EVN_ERROR_OUT_OF_MEMORY.
    void bring_back(const Weight& weight);
    // They are elsewhere too.
    void supply(const Weight& weight, std::shared_ptr<const void> bytes) { const_cast<Weight&>(weight).data = std::move(bytes); }
    // Brings them back, and they stay for good: somebody keeps their address.
    void keep(const Weight& weight);
    // What the bytes are that somebody has packed; throws as bring_back does when they were others before.
    void note_checksum(const Weight& weight, std::uint64_t checksum);
    // Throws EVN_ERROR_IO when the model's file is not as it was.
    void check_unchanged() const;
    // Nobody reads the bytes any more, unless somebody asked to keep them.
    void let_go(const Weight& weight);

   private:
    void check(const Weight& weight, const void* bytes) const;
    void make_slice(const Weight& part);
    // What is known of a weight: of a slice the model that has it cut.
    std::map<const Weight*, State>& states_of(const Weight& weight) const;

    const LoadedModel& cut_;    // the model itself, or one with nodes in parts
    const LoadedModel& model_;  // as it was loaded
    PlainWeights& weights_;     // its
    std::unique_lock<Mutex> lock_;
    std::unique_ptr<Model> again_;  // the model, read once more
  };

 private:
  Mutex mutex_;
  // What is known of weights that were ever kept or let go; in a model with nodes in parts of slices alone, and then guarded by the
  // mutex of the whole model's.
  std::map<const Weight*, State> states_;
};

}  // namespace evn
