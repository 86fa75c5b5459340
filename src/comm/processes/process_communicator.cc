#include "comm/processes/process_communicator.h"

#include <algorithm>
#include <utility>

#include "comm/parts.h"
#include "comm/processes/messages.h"
#include "comm/processes/process_world.h"
#include "comm/reductions.h"

namespace piper {
namespace {

constexpr size_t small_bytes = 16 << 10;  // sums up to here: everybody gets everything and adds up itself
constexpr size_t block_bytes = 60 << 10;  // of a sum: travels at once, while earlier ones are added up
constexpr size_t blocks_ahead = 8;        // as many are sent to a member before anything has come from it

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// The part of an array that a member adds up, in blocks.
struct Range {
  size_t begin = 0, end = 0;
  size_t blocks() const { return std::max<size_t>(1, (end - begin + block_bytes - 1) / block_bytes); }
  Range block(size_t b) const {
    return {std::min(end, begin + b * block_bytes), std::min(end, begin + (b + 1) * block_bytes)};
  }
  size_t size() const { return end - begin; }
  template <class Span>
  Span of(Span whole) const {
    return whole.subspan(begin, size());
  }
};

class ProcessCommunicator : public Communicator {
 public:
  ProcessCommunicator(std::shared_ptr<Engine> engine, int world, int devices, int device,
                      std::chrono::milliseconds timeout)
      : engine_(std::move(engine)), world_(world), devices_(devices), device_(device), timeout_(timeout) {}

  int device() const override { return device_; }

  int make_group(std::vector<int> members) override {
    groups_.push_back(std::move(members));
    return static_cast<int>(groups_.size()) - 1;
  }

  void send(int to, int64_t sequence, ConstBytes data) override {
    Messages messages(*engine_, world_, timeout_);
    messages.send(rank(to), key(-1, sequence, device_, to), data, data.size());
    messages.wait();
  }
  void receive(int from, int64_t sequence, Bytes data) override {
    Messages messages(*engine_, world_, timeout_);
    messages.receive(rank(from), key(-1, sequence, from, device_), data, data.size());
    messages.wait();
  }

  void all_reduce(int group, int64_t sequence, Bytes data, DataType dtype, Combine how) override {
    const Exchange exchange = begin(group, sequence, data.size());
    if (data.size() <= small_bytes) return all_reduce_small(exchange, data, dtype, how);
    const auto size = static_cast<size_t>(bytes_of(dtype));
    const size_t elements = data.size() / size, n = exchange.members.size();
    std::vector<Range> ranges;
    for (size_t m = 0; m < n; ++m) ranges.push_back({elements * m / n * size, elements * (m + 1) / n * size});
    Messages sums(*engine_, world_, timeout_);
    for (const size_t m : exchange.others())
      for (size_t b = 0; b < ranges[m].blocks(); ++b)
        exchange.receive(sums, m, sum_step(b), ranges[m].block(b).of(data));
    add_up(exchange, data, ranges, [&](size_t b, std::span<const std::byte* const> from) {
      const Bytes block = ranges[exchange.me].block(b).of(data);
      combine(from, block.data(), block.size(), dtype, how);
      for (const size_t m : exchange.others()) exchange.send(sums, m, sum_step(b), block);
    });
    sums.wait();
  }

  void reduce_scatter(int group, int64_t sequence, ConstBytes interleaved, int64_t run, Bytes part, DataType dtype,
                      Into into) override {
    const Exchange exchange = begin(group, sequence, interleaved.size());
    std::vector<std::byte> packed;
    const ConstBytes whole = in_order(interleaved, static_cast<size_t>(run), part.size(), packed);
    std::vector<Range> ranges;
    for (size_t m = 0; m < exchange.members.size(); ++m) ranges.push_back({m * part.size(), (m + 1) * part.size()});
    std::vector<std::byte> total(into == Into::Add ? std::min(block_bytes, part.size()) : 0);
    add_up(exchange, whole, ranges, [&](size_t b, std::span<const std::byte* const> from) {
      const Bytes block = Range{0, part.size()}.block(b).of(part);
      sum(from, into == Into::Add ? total.data() : block.data(), block.size(), dtype);
      if (into == Into::Add) add(total.data(), block.data(), block.size(), dtype);
    });
  }

  void all_gather(int group, int64_t sequence, ConstBytes part, Bytes whole, int64_t run_whole) override {
    const Exchange exchange = begin(group, sequence, whole.size());
    const size_t n = exchange.members.size(), size = part.size(), run = static_cast<size_t>(run_whole);
    std::vector<std::byte> unpacked(run != size ? whole.size() : 0);
    Messages messages(*engine_, world_, timeout_);
    for (const size_t m : exchange.others()) exchange.send(messages, m, 0, part);
    for (const size_t m : exchange.others())
      exchange.receive(messages, m, 0, (run != size ? Bytes(unpacked) : whole).subspan(m * size, size));
    if (whole.data() + exchange.me * size != part.data())
      copy_part(part.data(), 0, size, whole.data(), exchange.me, run, n, size);
    messages.wait();
    if (run != size)
      for (const size_t m : exchange.others()) copy_part(unpacked.data(), m, size, whole.data(), m, run, n, size);
  }

  void all_to_all(int group, int64_t sequence, ConstBytes out, int64_t run_out, Bytes in, int64_t run_in) override {
    const Exchange exchange = begin(group, sequence, in.size());
    const size_t n = exchange.members.size(), part = in.size() / n, me = exchange.me;
    const auto run_from = static_cast<size_t>(run_out), run_to = static_cast<size_t>(run_in);
    const bool packs = run_from != part, unpacks = run_to != part;
    std::vector<std::byte> packed(packs ? n * part : 0), unpacked(unpacks ? n * part : 0);
    Messages messages(*engine_, world_, timeout_);
    for (const size_t m : exchange.others()) {
      if (packs) copy_part(out.data(), m, run_from, packed.data(), m, part, n, part);
      exchange.send(messages, m, 0, (packs ? ConstBytes(packed) : out).subspan(m * part, part));
    }
    for (const size_t m : exchange.others())
      exchange.receive(messages, m, 0, (unpacks ? Bytes(unpacked) : in).subspan(m * part, part));
    copy_part(out.data(), me, run_from, in.data(), me, run_to, n, part);
    messages.wait();
    if (unpacks)
      for (const size_t m : exchange.others()) copy_part(unpacked.data(), m, part, in.data(), m, run_to, n, part);
  }

  void shift(int group, int64_t sequence, int by, ConstBytes out, Bytes in) override {
    const Exchange exchange = begin(group, sequence, in.size());
    const size_t n = exchange.members.size();
    Messages messages(*engine_, world_, timeout_);
    exchange.send(messages, (exchange.me + static_cast<size_t>(by)) % n, 0, out);
    exchange.receive(messages, places_before(exchange.me, by, n), 0, in);
    messages.wait();
  }

  void exchange(int group, int64_t sequence, int turn, std::span<const ConstBytes> out,
                std::span<const Bytes> in) override {
    const Exchange exchange = begin(group, sequence, 0);
    Messages messages(*engine_, world_, timeout_);
    const auto step = static_cast<size_t>(turn);
    const auto named = [&](int from, int to) { return key(group, sequence, from, to, step); };
    for (const size_t m : exchange.others())
      if (const int peer = exchange.members[m]; !out[m].empty())
        messages.send(rank(peer), named(device_, peer), out[m], out[m].size());
    for (const size_t m : exchange.others())
      if (const int peer = exchange.members[m]; !in[m].empty())
        messages.receive(rank(peer), named(peer, device_), in[m], in[m].size());
    if (out[exchange.me].size() != in[exchange.me].size()) throw CommunicationError(different_sizes);
    std::copy_n(out[exchange.me].data(), out[exchange.me].size(), in[exchange.me].data());
    messages.wait();
  }

  void abort(const std::string& reason) override { engine_->abort(world_, reason); }
  std::optional<Trouble> trouble() override { return engine_->trouble(world_); }

 private:
  /// One exchange in a process group, as this device sees it. Sends come before receives: what is announced first is
  /// cleared before what is cleared to us occupies the connection.
  struct Exchange {
    const ProcessCommunicator& from;
    const std::vector<int>& members;
    int group;
    int64_t sequence;
    size_t whole;
    size_t me;

    /// The members after this one first, so that not everybody sends to the same.
    std::vector<size_t> others() const {
      std::vector<size_t> result;
      for (size_t i = 1; i < members.size(); ++i) result.push_back((me + i) % members.size());
      return result;
    }
    void send(Messages& messages, size_t to, size_t step, ConstBytes data) const {
      messages.send(from.rank(members[to]), from.key(group, sequence, from.device_, members[to], step), data, whole);
    }
    void receive(Messages& messages, size_t sender, size_t step, Bytes data) const {
      messages.receive(from.rank(members[sender]), from.key(group, sequence, members[sender], from.device_, step), data,
                       whole);
    }
  };

  /// The parts of an array one after another; `memory` for them where they do not lie so.
  static ConstBytes in_order(ConstBytes array, size_t run, size_t part, std::vector<std::byte>& memory) {
    if (run == part || array.empty()) return array;
    memory.resize(array.size());
    const size_t n = array.size() / part;
    for (size_t m = 0; m < n; ++m) copy_part(array.data(), m, run, memory.data(), m, part, n, part);
    return memory;
  }

  static size_t block_step(size_t block) { return 2 * block; }
  static size_t sum_step(size_t block) { return 2 * block + 1; }

  Exchange begin(int group, int64_t sequence, size_t whole) const {
    const std::vector<int>& members = groups_[static_cast<size_t>(group)];
    const auto me = static_cast<size_t>(std::find(members.begin(), members.end(), device_) - members.begin());
    if (me == members.size()) throw CommunicationError("a device communicates in a group of others");
    return {*this, members, group, sequence, whole, me};
  }

  void all_reduce_small(const Exchange& exchange, Bytes data, DataType dtype, Combine how) {
    const size_t n = exchange.members.size();
    std::vector<std::byte> all(n * data.size());
    std::vector<const std::byte*> from;
    for (size_t m = 0; m < n; ++m) from.push_back(m == exchange.me ? data.data() : all.data() + m * data.size());
    Messages messages(*engine_, world_, timeout_);
    for (const size_t m : exchange.others()) exchange.send(messages, m, 0, data);
    for (const size_t m : exchange.others())
      exchange.receive(messages, m, 0, Bytes(all).subspan(m * data.size(), data.size()));
    messages.wait();
    combine(from, data.data(), data.size(), dtype, how);
  }

  /// Sends every member its range of `whole` and receives everybody's elements of this one's: `added(b, from)` gets
  /// those of block b, by member, while the next blocks are on their way.
  template <class Added>
  void add_up(const Exchange& exchange, ConstBytes whole, const std::vector<Range>& ranges, Added added) {
    const size_t n = exchange.members.size(), me = exchange.me;
    const Range& mine = ranges[me];
    const size_t longest = std::min(block_bytes, mine.size()), ahead = std::min(blocks_ahead, mine.blocks());
    std::vector<std::byte> memory(ahead * n * longest);
    const auto place = [&](size_t b, size_t m) {
      return Bytes(memory).subspan((b % ahead * n + m) * longest, mine.block(b).size());
    };
    std::vector<std::unique_ptr<Messages>> coming(ahead);
    const auto expect = [&](size_t b) {
      coming[b % ahead] = std::make_unique<Messages>(*engine_, world_, timeout_);
      for (const size_t m : exchange.others()) exchange.receive(*coming[b % ahead], m, block_step(b), place(b, m));
    };
    Messages going(*engine_, world_, timeout_);
    const auto send = [&](size_t b) {
      for (const size_t m : exchange.others())
        if (b < ranges[m].blocks()) exchange.send(going, m, block_step(b), ranges[m].block(b).of(whole));
    };
    size_t most = 0;
    for (const Range& range : ranges) most = std::max(most, range.blocks());
    for (size_t b = 0; b < blocks_ahead; ++b) send(b);
    for (size_t b = 0; b < ahead; ++b) expect(b);
    std::vector<const std::byte*> from(n);
    for (size_t b = 0; b < mine.blocks(); ++b) {
      coming[b % ahead]->wait();
      for (size_t m = 0; m < n; ++m) from[m] = m == me ? mine.block(b).of(whole).data() : place(b, m).data();
      send(b + blocks_ahead);
      added(b, from);
      if (b + ahead < mine.blocks()) expect(b + ahead);
    }
    for (size_t b = mine.blocks() + blocks_ahead; b < most; ++b) send(b);  // ranges differ by an element
    going.wait();
  }

  int rank(int device) const { return rank_of(device, engine_->ranks(), devices_); }
  MessageKey key(int group, int64_t sequence, int from, int to, size_t step = 0) const {
    return {world_, group, from, to, static_cast<int32_t>(step), sequence};
  }

  const std::shared_ptr<Engine> engine_;
  const int world_, devices_, device_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::vector<int>> groups_;
};

}  // namespace

std::unique_ptr<Communicator> make_process_communicator(std::shared_ptr<Engine> engine, int world, int devices,
                                                        int device, std::chrono::milliseconds timeout) {
  return std::make_unique<ProcessCommunicator>(std::move(engine), world, devices, device, timeout);
}

}  // namespace piper
