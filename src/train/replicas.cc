// Steps whose batch is split among several devices of the runtime. Each has the parameters of the trainer, makes the gradients of
// its rows, and these are summed by the rows that each had, while the backward passes go on.
#include <algorithm>
#include <numeric>

#include "base/os/os.h"
#include "train/loss.h"
#include "train/trainer.h"

namespace evn_train {
namespace {

constexpr std::uint64_t kFirstMeasured = 3;  // the first steps make plans and warm up
constexpr std::uint64_t kShareEvery = 64;    // steps, after which the shares are looked at again
constexpr double kWorthwhile = 0.85;         // of the time that the slowest part takes: other shares mean new plans

// Where tensors of the host lie, and stay.
std::vector<float*> addresses_of(const std::vector<Tensor>& tensors) {
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

void Trainer::make_replicas() {
  call(evn_queue_create, ended_.out());
  for (const std::string& device : settings_.replicas) {
    Replica& r = replicas_.emplace_back();
    r.device = device;
    r.share = 1.0 / static_cast<double>(settings_.replicas.size());
    for (const Parameter& p : parameters()) r.gradients.emplace_back(runtime_, EVN_DTYPE_FLOAT32, p.dims);
    for (const Statistic& s : graphs_->statistics()) r.statistics.emplace_back(runtime_, EVN_DTYPE_FLOAT32, s.dims);
    r.loss = Tensor(runtime_, EVN_DTYPE_FLOAT32, {});
    r.shape = Tensor(runtime_, EVN_DTYPE_INT64, {static_cast<std::int64_t>(kShapeElements)});
  }
  std::vector<std::size_t> elements;
  for (const auto* list : {&parameters(), &graphs_->statistics()}) {
    for (const Parameter& p : *list) elements.push_back(p.bytes() / sizeof(float));
  }
  std::vector<std::vector<float*>> parts;
  for (const Replica& r : replicas_) {
    parts.push_back(addresses_of(r.gradients));
    append(&parts.back(), addresses_of(r.statistics));
  }
  replica_sums_.emplace(std::move(parts), std::move(elements));
}

Trainer::Work& Trainer::replica_work(Replica& replica, Labels labels) {
  std::optional<Work>& work = replica.work[static_cast<int>(labels)];
  if (!work) {
    Session session = make_session(graphs_->gradient_model(labels), "training: gradient of a replica", false, replica.device,
                                   settings_.given.memory_limit);
    work.emplace();
    work->session = std::move(session);
  }
  return *work;
}

// Rows in proportion to the shares: the largest remainders get what rounding leaves.
void Trainer::split_batch(std::size_t rows) {
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
void Trainer::rebalance() {
  double speed = 0, slowest = 0;
  for (const Replica& r : replicas_) {
    if (r.row_ns <= 0) return;
    speed += 1 / r.row_ns;
    slowest = std::max(slowest, r.row_ns * r.share);
  }
  if (1 / speed > kWorthwhile * slowest) return;
  for (Replica& r : replicas_) r.share = 1 / r.row_ns / speed;
}

void Trainer::set_part(Replica& replica, Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels,
                       std::size_t first) {
  Work& work = replica_work(replica, labels);
  replica.views.clear();
  const auto part_of = [&](evn_tensor tensor) {
    if (tensor == nullptr || info_of(tensor).rank == 0) return tensor;
    replica.views.push_back(rows_of(tensor, first, replica.rows));
    return replica.views.back().get();
  };
  std::vector<evn_tensor> parts;
  for (const evn_tensor input : inputs) parts.push_back(part_of(input));
  set_arguments(work, parts, part_of(of_labels));
  give_loss_scale(work);
  work.outputs.assign(1, replica.loss.get());
  append(&work.outputs, replica.gradients);
  append(&work.outputs, replica.statistics);
  work.outputs.push_back(replica.shape.get());
}

// Sums begin when all replicas have made a gradient, and each sum goes on to the buckets of ranks where `how` says so.
void Trainer::begin_sums(std::size_t rows, Run how) {
  std::vector<float> weights;
  for (const Replica& r : replicas_) weights.push_back(static_cast<float>(r.rows) / static_cast<float>(rows));
  std::vector<float*> to = addresses_of(settings_.accumulates() && accumulated_ == 0 ? sums_ : gradients_);
  append(&to, addresses_of(new_statistics_));
  Buckets* const buckets = how == Run::kOverlapped ? &*buckets_ : nullptr;
  replica_sums_->begin(std::move(weights), std::move(to), [buckets, gradients = parameters().size()](std::size_t g) {
    if (buckets != nullptr && g < gradients) buckets->ready(g);
  });
}

void Trainer::submit_replica(std::size_t index, Work& work, evn_request* request) {
  evn_run_options options = EVN_RUN_OPTIONS_INIT;
  options.allow_copies = 1;
  options.cancel = cancel_;
  options.random_seed = seed_of_run(index);
  Replica& r = replicas_[index];
  evn_submit_options submit = EVN_SUBMIT_OPTIONS_INIT;
  submit.queue = ended_.get();
  submit.user = &r;
  r.listener = {&*replica_sums_, index, 1 + r.gradients.size() + r.statistics.size()};
  const auto ready = [](void* context, std::uint32_t output) {
    const auto& l = *static_cast<const Replica::Listener*>(context);
    if (output >= 1 && output < l.end) l.sums->ready(l.replica, output - 1);
  };
  r.begin_ns = evn::os::now_ns();
  submit_listened(work.session.get(), work.inputs, work.outputs, options, submit, {ready, &r.listener}, request);
}

void Trainer::make_gradients_split(Labels labels, std::span<const evn_tensor> inputs, evn_tensor of_labels, std::int64_t batch,
                                   Run how) {
  if (batch == 0) fail(EVN_ERROR_INVALID_ARGUMENT, "no input has a batch that replicas could share");
  const auto rows = static_cast<std::size_t>(batch);
  split_batch(rows);
  std::vector<Request> requests(replicas_.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    Replica& r = replicas_[i];
    if (r.rows == 0) continue;
    set_part(r, labels, inputs, of_labels, first);
    first += r.rows;
  }
  begin_sums(rows, how);
  // Whatever fails, runs and sums have ended when this returns.
  struct Ends {
    ReplicaSums& sums;
    std::vector<Request>& requests;
    ~Ends() {
      requests.clear();
      sums.end();
    }
  } ends{*replica_sums_, requests};
  std::optional<evn::Error> error;
  std::size_t runs = 0;
  for (std::size_t i = 0; i < replicas_.size() && !error; ++i) {
    if (replicas_[i].rows == 0) continue;
    Work& work = replica_work(replicas_[i], labels);
    if (i == 0) latest_ = &work;
    error = error_of([&] { submit_replica(i, work, requests[i].out()); });
    if (!error) ++runs;
  }
  double loss = 0;
  for (; runs > 0; --runs) {
    evn_request request = nullptr;
    void* user = nullptr;
    call(evn_queue_next, ended_.get(), UINT64_MAX, &request);
    call(evn_request_user, request, &user);
    auto& r = *static_cast<Replica*>(user);
    r.end_ns = evn::os::now_ns();
    const auto i = static_cast<std::size_t>(&r - replicas_.data());
    const auto failed = error_of([&] { requests[i].take(replica_work(r, labels).outputs); });
    if (failed && !error) error = failed;
    if (!failed) replica_sums_->all_ready(i);
  }
  if (error) {
    explain_failure(*error, inputs, labels, of_labels);
    throw evn::Error(*error);
  }
  check_labels_of_parts(inputs, labels, of_labels, rows);
  for (Replica& r : replicas_) {
    if (r.rows == 0) continue;
    const double row_ns = static_cast<double>(r.end_ns - r.begin_ns) / static_cast<double>(r.rows);
    r.row_ns = r.row_ns > 0 && calls_ > kFirstMeasured ? (r.row_ns + row_ns) / 2 : row_ns;
    loss +=
        static_cast<double>(static_cast<float>(r.rows) / static_cast<float>(rows)) * static_cast<double>(r.loss.scalar<float>());
  }
  const float mean = static_cast<float>(loss);
  loss_.write(&mean, sizeof mean);
  if (calls_ == kFirstMeasured || calls_ % kShareEvery == 0) rebalance();
}

}  // namespace evn_train
