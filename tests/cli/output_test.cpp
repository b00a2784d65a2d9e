// SPDX-License-Identifier: Apache-2.0
// Merging of output: no byte lost, no line split.
#include "launch/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>

namespace tugline::cli {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading.reset(ends[0]);
    writing.reset(ends[1]);
  }
  void put(std::string_view text) const {
    ASSERT_EQ(::write(writing.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  base::UniqueFd reading;
  base::UniqueFd writing;
};

std::string read_all(int descriptor) {
  std::string text;
  char block[4096];
  while (true) {
    auto got = ::read(descriptor, block, sizeof block);
    if (got <= 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

TEST(Output, KeepsLinesWholeAndFlushesTheLastPartialOne) {
  Pipe first;
  Pipe second;
  Pipe target;
  Sink sink(target.writing.get());
  LineSource a(std::move(first.reading), "[0] ", sink);
  LineSource b(std::move(second.reading), "[1] ", sink);
  first.put("one\ntw");
  EXPECT_TRUE(a.read_some());
  EXPECT_FALSE(a.read_some());
  second.put("\nother\n");
  EXPECT_TRUE(b.read_some());
  first.put("o\nlast");
  EXPECT_TRUE(a.read_some());
  first.writing.reset();
  second.writing.reset();
  while (!a.ended()) a.read_some();
  while (!b.ended()) b.read_some();
  sink.write_all();
  target.writing.reset();
  EXPECT_EQ(read_all(target.reading.get()), "[0] one\n[1] \n[1] other\n[0] two\n[0] last\n");
}

TEST(Output, PassesBinaryBytesAndVeryLongLines) {
  std::string line(3'000'000, 'x');
  line[1000] = '\0';
  line += '\n';
  Pipe source;
  Pipe target;
  Sink sink(target.writing.get());
  LineSource reader(std::move(source.reading), "", sink);
  std::thread writer([&] {
    std::string_view rest = line;
    while (!rest.empty()) {
      auto written = ::write(source.writing.get(), rest.data(), rest.size());
      if (written <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    source.writing.reset();
  });
  std::string seen;
  std::thread collector([&] { seen = read_all(target.reading.get()); });
  while (!reader.ended()) {
    pollfd polled{reader.descriptor(), POLLIN, 0};
    ::poll(&polled, 1, -1);
    reader.read_some();
    sink.write_all();
  }
  sink.write_all();
  target.writing.reset();
  writer.join();
  collector.join();
  std::string without;
  for (char byte : seen) {
    if (byte != '\n') without += byte;
  }
  EXPECT_EQ(without, line.substr(0, line.size() - 1));
  EXPECT_LE(std::count(seen.begin(), seen.end(), '\n'), 3);
}

TEST(Output, SinkHoldsBackAndGoesOn) {
  Pipe target;
  Sink sink(target.writing.get());
  std::string block(300 << 10, 'y');
  sink.add(block);
  EXPECT_FALSE(sink.has_room());
  std::string seen;
  std::thread collector([&] { seen = read_all(target.reading.get()); });
  while (sink.has_pending()) {
    pollfd polled{sink.descriptor(), POLLOUT, 0};
    ::poll(&polled, 1, -1);
    sink.write_some();
  }
  EXPECT_TRUE(sink.has_room());
  target.writing.reset();
  collector.join();
  EXPECT_EQ(seen, block);
}

TEST(Output, AGoneReaderBreaksTheSink) {
  auto before = ::signal(SIGPIPE, SIG_IGN);
  Pipe target;
  target.reading.reset();
  Sink sink(target.writing.get());
  sink.add("nobody reads this\n");
  sink.write_some();
  EXPECT_EQ(sink.error(), EPIPE);
  EXPECT_FALSE(sink.has_pending());
  EXPECT_TRUE(sink.has_room());
  ::signal(SIGPIPE, before);
}

TEST(Output, AFullDeviceIsToldApartFromAGoneReader) {
  base::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  Sink sink(full.get());
  sink.add("no room for this\n");
  sink.write_some();
  EXPECT_EQ(sink.error(), ENOSPC);
  EXPECT_TRUE(sink.has_room());
}

TEST(Output, LooksForTheReaderOfASharedDescriptor) {
  Pipe target;
  Sink sink(target.writing.get());
  sink.look_for_reader();
  EXPECT_EQ(sink.error(), 0);
  target.reading.reset();
  sink.look_for_reader();
  EXPECT_EQ(sink.error(), EPIPE);
}

}  // namespace
}  // namespace tugline::cli
