// Constants of scheduling: runs, the pool of threads, requests and batches. All of them stand here, with unit and reason.
// docs/notes/scheduling.md says which of them the simulation of tests/simulation notices, and how.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evn::scheduling {

// --------------------------------------------------------------------------- scheduler of runs (run_scheduler, run_thread) --

// ns. A run that has waited for this long computes beside more urgent runs, so that no run waits for ever.
inline constexpr std::uint64_t kStarvedNs = 1'000'000'000;
// ns. Length of that: a starved run gets at least this share of a second, and an urgent run loses a core for no longer.
inline constexpr std::uint64_t kBoostNs = 10'000'000;
// ns. A run that has just come may take a free core before a run of the same urgency that has waited for less than this. A thread
// that runs a short model again and again need not wait until another thread has woken up.
inline constexpr std::uint64_t kMaxOvertakenNs = 1'000'000;
// ns. A thread is expected back if it asks for a core within this time after its run's end: about the host's work between two runs
// of a short model.
inline constexpr std::uint64_t kQuickReturnNs = 20'000;
// Number of such returns in a row that makes the next one expected.
inline constexpr int kQuickReturns = 2;
// ns. Length of a turn, in which a thread that is expected back wakes nobody: one hand-over costs some 90 us, as much as a short
// run. Longer turns raise the 99th percentile of the latency in proportion.
inline constexpr std::uint64_t kTurnNs = 2'000'000;
// ns. First time-out of a waiting run, doubled after each up to kStarvedNs: the run finds a core that was left to a thread which
// has not returned. A run with a cancellation token keeps the first one, as a signal handler that requests the token can wake
// nobody.
inline constexpr std::uint64_t kFirstPollNs = 4'000'000;
// ns. Longest time for which a thread keeps its core after its run's end, to hand on the result before the system gives the core to
// a thread that has been woken for it.
inline constexpr std::uint64_t kLingerNs = 300'000;
// Share of the run's time (1/n) that bounds the same if a run of equal urgency waits: the cost in throughput.
inline constexpr std::uint64_t kLingerShare = 16;
// ns. Shorter times are not worth a lingering: the thread could not return within them.
inline constexpr std::uint64_t kMinLingerNs = 50'000;
// Number of late returns in a row that still doubles the number of runs (2^n) after which a thread does not linger.
inline constexpr int kMaxLateReturns = 6;
// Number of threads that are woken after the scheduler's lock has been released; further threads are woken under the lock.
inline constexpr int kMaxDeferredWakes = 8;

// ------------------------------------------------------------------------------------------ pool of threads (thread_pool) --

// ns. Time for which a thread spins before it sleeps: less than a wake-up costs, so that a spin never loses more than it can save.
inline constexpr std::uint64_t kSpinNs = 30'000;
// Factor by which a thread spins longer while jobs come within that longer time.
inline constexpr std::uint64_t kLongSpinFactor = 8;
// Number of looks at the awaited word for each look at the clock, which costs as much as two of them.
inline constexpr int kSpinsPerClockRead = 32;
// Number of jobs of different callers that are open at a time. A caller that finds no slot computes alone.
inline constexpr int kMaxJobs = 8;
// ns. Debt (waiting time that the length of the ranges does not explain) from which a caller computes alone for a time.
inline constexpr std::uint64_t kMaxDebtNs = 200'000;
// ns. Debt for each worker that was on the core of its caller, where the two only take turns.
inline constexpr std::uint64_t kSharedCoreDebtNs = 40'000;
// Share of the time of jobs (1/n) by which debt is paid off.
inline constexpr std::uint64_t kDebtRepaymentShare = 8;
// Time alone for each ns of debt: waiting then costs a sixteenth of all time.
inline constexpr std::uint64_t kAlonePerDebt = 16;
// ns. Upper bound of the time alone, after which helpers are tried again.
inline constexpr std::uint64_t kMaxAloneNs = 100'000'000;
// ns. Longer waits count as no debt: the process was stopped, as no system's scheduler keeps a thread from its core for so long.
inline constexpr std::uint64_t kSuspendedNs = 50'000'000;
// ns. Time of jobs with a worker on their caller's core after which such a worker moves to another core, by three system calls. The
// system may leave both there for seconds.
inline constexpr std::uint64_t kMinLossForMoveNs = 500'000;

// ----------------------------------------------------------------------------------- helpers of short runs (help_worth) --

// ns. Runs of less than this are measured; longer runs are always helped.
inline constexpr std::uint64_t kShortRunNs = 500'000;
// ns. Time of runs after which it is decided whether helpers are worth their cores.
inline constexpr std::uint64_t kHelpSampleNs = 2'000'000;
// Share of that time (1/n) that helpers must save.
inline constexpr std::uint64_t kMinHelpShare = 10;
// Number of runs that compute alone where they do not, before they are measured again.
inline constexpr std::uint32_t kRunsWithoutHelp = 1000;

// ------------------------------------------------------------------------- requests (runtime/request, runtime/dispatch) --

// Number of threads beside those that execute: for more urgent requests, and in the place of threads in long callbacks.
inline constexpr int kMaxExtraThreads = 64;
// ns. Interval at which the watcher looks at tokens, callbacks and batches: requests end within this after they were cancelled.
inline constexpr std::uint64_t kWatchIntervalNs = 2'000'000;
// Time between two looks of the watcher, in lengths of a look: it takes at most 1/n of a core.
inline constexpr std::uint64_t kWatchShare = 20;
// ns. Longest time for which the first of a batch waits before it looks again whether others are on their way.
inline constexpr std::uint64_t kGatherPollNs = 20'000'000;
// ns. Least time that the watcher sleeps before a deadline.
inline constexpr std::uint64_t kMinWatchNs = 100'000;
// ns. Length of a callback from which another thread takes the place of its thread while requests wait.
inline constexpr std::uint64_t kLongCallbackNs = 4'000'000;
// Number of waiting requests that are searched for one expected to meet its deadline. Requests that are expected to miss theirs are
// about as many as the cores, times the overload.
inline constexpr int kMaxDeadlineChecks = 1024;
// ns. Waiting time of a request that counts as one step of priority.
inline constexpr std::uint64_t kAgeOfPriorityNs = 1'000'000'000;

// --------------------------------------------------------------------------------------- batches (runtime/batch) --

// ns. Time that a batch leaves before its first deadline, beside twice the mean run: for the wake-up of its thread.
inline constexpr std::uint64_t kDeadlineSlackNs = 500'000;
// Weight (1/n) of the latest run or batch in moving averages: of the time of a run, the cost of a row and the requests in flight.
inline constexpr std::uint64_t kMeanShare = 8;
// ns of computing, in which batches are as large as they may be: no sooner can sizes be measured.
inline constexpr std::uint64_t kFreeNs = 50'000'000;
// ns. Runs of at least this are known to be long, and sizes are tried from the first batch on.
inline constexpr std::uint64_t kLongRunNs = 5'000'000;
// Least number of batches, and least ns of computing, from which the cost of a size is known.
inline constexpr std::uint32_t kTrialBatches = 2;
inline constexpr std::uint64_t kTrialNs = 20'000'000;
// Number of larger batches in a trial of a size, after which no batch of that size is expected. Those that run when the trial
// begins are fewer.
inline constexpr int kUnseenBatches = 16;
// ns of computing after which the sizes beside the chosen one are tried again; doubled, up to the second, if nothing changes.
inline constexpr std::uint64_t kRetrialNs = 3'000'000'000;
inline constexpr std::uint64_t kMaxRetrialNs = 48'000'000'000;
// Least gain per row for which a batch is doubled: its members wait longer for it.
inline constexpr double kMinGain = 0.04;
// Multiple of the mean cost of a row above which a batch was held up by something else.
inline constexpr double kMaxOfMean = 2;
// Number of sizes, each twice the one before: up to a million rows.
inline constexpr int kMaxSizes = 20;

}  // namespace evn::scheduling
