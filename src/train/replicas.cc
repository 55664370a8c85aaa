#include "train/replicas.h"

#include <algorithm>
#include <utility>

#include "base/number_text.h"
#include "base/os/os.h"
#include "train/loss.h"

namespace evn_train {
namespace {

constexpr std::uint64_t kFirstMeasured = 3;  // the first steps make plans and warm up
constexpr std::uint64_t kShareEvery = 64;    // steps, after which the shares are looked at again
constexpr double kWorthwhile = 0.85;         // of the time that the slowest part takes: other shares mean new plans

// Where tensors of the host lie, and stay.
std::vector<float*> addresses_of(std::span<const Tensor> tensors) {
  std::vector<float*> addresses;
  addresses.reserve(tensors.size());
  for (const Tensor& t : tensors) addresses.push_back(static_cast<float*>(Mapped(t).data()));
  return addresses;
}

void append(std::vector<float*>* to, const std::vector<float*>& from) { to->insert(to->end(), from.begin(), from.end()); }

// A submitted run, which has ended when this has.
class Request {
 public:
  Request() = default;
  Request(Request&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Request& operator=(Request&&) = delete;
  ~Request() {
    if (handle_ == nullptr) return;
    bool done = false;
    evn_request_wait(handle_, UINT64_MAX, &done, nullptr);
    evn_request_release(handle_);
  }
  evn_request* out() { return &handle_; }
  // Waits for it. Throws what the run has failed with.
  void take(std::vector<evn_tensor>& outputs) {
    bool done = false;
    call(evn_request_wait, handle_, UINT64_MAX, &done);
    call(evn_request_take, handle_, outputs.data(), static_cast<std::uint32_t>(outputs.size()));
  }

 private:
  evn_request handle_ = nullptr;
};

}  // namespace

Replicas::Replicas(const Works& works, const TrainingGraphs& graphs, const Settings& settings, TrainerTensors* tensors,
                   LabelCheck* labels)
    : works_(works), graphs_(graphs), settings_(settings), tensors_(*tensors), labels_(*labels) {
  call(evn_queue_create, ended_.out());
  const evn_runtime runtime = works.runtime();
  for (const std::string& device : settings.replicas) {
    Replica& r = replicas_.emplace_back();
    r.device = device;
    r.share = 1.0 / static_cast<double>(settings.replicas.size());
    for (const Parameter& p : graphs.parameters()) r.gradients.emplace_back(runtime, EVN_DTYPE_FLOAT32, p.dims);
    for (const Statistic& s : graphs.statistics()) r.statistics.emplace_back(runtime, EVN_DTYPE_FLOAT32, s.dims);
    r.loss = Tensor(runtime, EVN_DTYPE_FLOAT32, {});
    r.shape = Tensor(runtime, EVN_DTYPE_INT64, {static_cast<std::int64_t>(kShapeElements)});
  }
  std::vector<std::size_t> elements;
  for (const auto* list : {&graphs.parameters(), &graphs.statistics()}) {
    for (const Parameter& p : *list) elements.push_back(p.bytes() / sizeof(float));
  }
  std::vector<std::vector<float*>> parts;
  for (const Replica& r : replicas_) {
    parts.push_back(addresses_of(r.gradients));
    append(&parts.back(), addresses_of(r.statistics));
  }
  sums_.emplace(std::move(parts), std::move(elements));
}

void Replicas::prepare(Labels kind) {
  for (Replica& r : replicas_) work_of(r, kind);
}

Work& Replicas::work_of(Replica& replica, Labels kind) {
  std::optional<Work>& work = replica.work[static_cast<int>(kind)];
  if (!work) {
    work =
        works_.make(graphs_.gradient_model(kind), "training: gradient of a replica", replica.device, settings_.given.memory_limit);
  }
  return *work;
}

// Rows in proportion to the shares: the largest remainders get what rounding leaves.
void Replicas::split_batch(std::size_t rows) {
  std::vector<std::pair<double, std::size_t>> rests;
  std::size_t left = rows;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const double exact = replicas_[i].share * static_cast<double>(rows);
    replicas_[i].rows = std::min(left, static_cast<std::size_t>(exact));
    left -= replicas_[i].rows;
    rests.emplace_back(static_cast<double>(replicas_[i].rows) - exact, i);
  }
  std::sort(rests.begin(), rests.end());
  for (std::size_t i = 0; left > 0; i = (i + 1) % rests.size(), --left) ++replicas_[rests[i].second].rows;
}

// Shares in proportion to the speed of each, where that would be worth new plans.
void Replicas::rebalance() {
  double speed = 0, slowest = 0;
  for (const Replica& r : replicas_) {
    if (r.row_ns <= 0) return;
    speed += 1 / r.row_ns;
    slowest = std::max(slowest, r.row_ns * r.share);
  }
  if (1 / speed > kWorthwhile * slowest) return;
  for (Replica& r : replicas_) r.share = 1 / r.row_ns / speed;
}

LabelCheck::Part Replicas::set_part(Replica& replica, const Batch& batch, float loss_scale, std::size_t first) {
  Work& work = work_of(replica, batch.kind);
  replica.views.clear();
  const auto part_of = [&](evn_tensor tensor) {
    if (tensor == nullptr || info_of(tensor).rank == 0) return tensor;
    replica.views.push_back(rows_of(tensor, first, replica.rows));
    return replica.views.back().get();
  };
  std::vector<evn_tensor> parts;
  for (const evn_tensor input : batch.inputs) parts.push_back(part_of(input));
  const evn_tensor labels = part_of(batch.labels);
  tensors_.give({parts, labels, batch.kind, static_cast<std::int64_t>(replica.rows)}, &work);
  tensors_.give_loss_scale(loss_scale, &work);
  work.outputs.assign(1, replica.loss.get());
  append(&work.outputs, replica.gradients);
  append(&work.outputs, replica.statistics);
  work.outputs.push_back(replica.shape.get());
  return {replica.rows, labels, &replica.shape};
}

// Sums begin when all replicas have made a gradient.
void Replicas::begin_sums(const Batch& batch, const Run& run) {
  std::vector<float> weights;
  for (const Replica& r : replicas_) weights.push_back(static_cast<float>(r.rows) / static_cast<float>(batch.rows));
  std::vector<float*> to = addresses_of(run.gradients);
  append(&to, addresses_of(tensors_.new_statistics));
  sums_->begin(std::move(weights), std::move(to), [summed = run.summed, gradients = run.gradients.size()](std::size_t g) {
    if (summed != nullptr && g < gradients) summed(g);
  });
}

void Replicas::submit(std::size_t index, Work& work, std::uint64_t seed, evn_request* request) {
  const evn_run_options options = works_.options(seed, Works::Stop::kByToken);
  Replica& r = replicas_[index];
  evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
  submit.queue = ended_.get();
  submit.user = &r;
  r.listener = {&*sums_, index, 1 + r.gradients.size() + r.statistics.size()};
  const auto ready = [](void* context, std::uint32_t output) {
    const auto& l = *static_cast<const Replica::Listener*>(context);
    if (output >= 1 && output < l.end) l.sums->ready(l.replica, output - 1);
  };
  r.begin_ns = evn::os::now_ns();
  submit_listened(work.session.get(), work.inputs, work.outputs, options, submit, {ready, &r.listener}, request);
}

// Runs the parts, and sums what they make.
void Replicas::run_parts(const Batch& batch, const Run& run) {
  begin_sums(batch, run);
  std::vector<Request> requests(replicas_.size());
  // Whatever fails, runs and sums have ended when this returns.
  struct Ends {
    ReplicaSums& sums;
    std::vector<Request>& requests;
    ~Ends() {
      requests.clear();
      sums.end();
    }
  } ends{*sums_, requests};
  std::optional<evn::Error> error;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < replicas_.size() && !error; ++i) {
    if (replicas_[i].rows == 0) continue;
    Work& work = work_of(replicas_[i], batch.kind);
    if (i == 0) latest_ = &work;
    error = error_of([&] { submit(i, work, run.seed(i), requests[i].out()); });
    if (!error) ++runs;
  }
  for (; runs > 0; --runs) {
    evn_request request = nullptr;
    void* user = nullptr;
    call(evn_queue_next, ended_.get(), UINT64_MAX, &request);
    call(evn_request_user, request, &user);
    auto& r = *static_cast<Replica*>(user);
    r.end_ns = evn::os::now_ns();
    const auto i = static_cast<std::size_t>(&r - replicas_.data());
    const auto failed = error_of([&] { requests[i].take(work_of(r, batch.kind).outputs); });
    if (failed && !error) error = failed;
    if (!failed) sums_->all_ready(i);
  }
  if (error) throw evn::Error(*error);
}

void Replicas::make_gradients(const Batch& batch, const Run& run) {
  if (batch.rows == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "no input has a batch that replicas could share");
  const auto rows = static_cast<std::size_t>(batch.rows);
  split_batch(rows);
  std::size_t first = 0;
  std::vector<LabelCheck::Part> parts;
  for (Replica& r : replicas_) {
    if (r.rows == 0) continue;
    parts.push_back(set_part(r, batch, run.loss_scale, first));
    first += r.rows;
  }
  if (const std::optional<evn::Error> error = error_of([&] { run_parts(batch, run); })) {
    labels_.explain(*error, batch);
    throw evn::Error(*error);
  }
  labels_.check_parts(batch, parts);
  double loss = 0;
  for (Replica& r : replicas_) {
    if (r.rows == 0) continue;
    const double row_ns = static_cast<double>(r.end_ns - r.begin_ns) / static_cast<double>(r.rows);
    r.row_ns = r.row_ns > 0 && run.step > kFirstMeasured ? (r.row_ns + row_ns) / 2 : row_ns;
    loss +=
        static_cast<double>(static_cast<float>(r.rows) / static_cast<float>(rows)) * static_cast<double>(r.loss.scalar<float>());
  }
  const float mean = static_cast<float>(loss);
  tensors_.loss.write(&mean, sizeof mean);
  if (run.step == kFirstMeasured || run.step % kShareEvery == 0) rebalance();
}

void Replicas::describe(evn::JsonWriter* json) const {
  for (const Replica& r : replicas_) {
    json->begin_object();
    json->field("device", std::string_view(r.device));
    json->key("share");
    json->number(evn::shortest_text(r.share));
    json->end_object();
  }
}

std::string Replicas::describe_as_text() const {
  std::string text;
  for (const Replica& r : replicas_) text += "replica: " + r.device + ", share " + evn::shortest_text(r.share) + "\n";
  return text;
}

}  // namespace evn_train
