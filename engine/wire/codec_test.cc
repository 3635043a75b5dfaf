// SPDX-License-Identifier: Apache-2.0
#include "engine/wire/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <msgpack.hpp>

#include "base/random.h"
#include "engine/wire/samples_of_messages.h"

namespace wflow::engine::wire {
namespace {

TEST(Codec, KeepsEveryFieldOfEveryMessage) {
  for (const Message& message : sample_messages()) {
    const std::string bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back) << "kind " << message.index();
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes) << "kind " << message.index();
  }
}

// Every question, answer and event as part of a message.
std::vector<Message> all_messages() {
  std::vector<Message> messages = sample_messages();
  for (const Query& query : sample_queries()) messages.emplace_back(query);
  for (const Answer& answer : sample_answers()) messages.emplace_back(answer);
  return messages;
}

TEST(Codec, KeepsEveryQuestionAnswerAndEvent) {
  EXPECT_EQ(sample_queries().size(), std::variant_size_v<Request>);
  EXPECT_EQ(sample_answers().size(), std::variant_size_v<decltype(Answer::body)>);
  EXPECT_EQ(sample_events().size(), std::variant_size_v<EventBody>);
  for (const Message& message : all_messages()) {
    const std::string bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back) << "kind " << message.index();
    EXPECT_EQ(encode(*back), bytes) << "kind " << message.index();
  }
  const auto queries = sample_queries();
  for (std::size_t i = 0; i < queries.size(); ++i) {
    EXPECT_EQ(queries[i].request.index(), i);
    EXPECT_EQ(std::get<Query>(*decode(encode(queries[i]))).request.index(), i);
  }
  const auto answers = sample_answers();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].body.index(), i);
    EXPECT_EQ(std::get<Answer>(*decode(encode(answers[i]))).body.index(), i);
  }
}

TEST(Codec, KeepsWhatIsNotANumber) {
  const auto back = decode(encode(Results{1, {}, {}, {{0, 0, 0, 1, Metric{"loss", 1, 2, std::nan("")}}}}));
  ASSERT_TRUE(back);
  EXPECT_TRUE(std::isnan(std::get<Metric>(std::get<Results>(*back).events.at(0).body).value));
}

TEST(Codec, HasASampleOfEveryKind) {
  const auto messages = sample_messages();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(messages[i].index(), i);
}

TEST(Codec, ReadsBackValues) {
  const auto back = decode(encode(sample_messages()[1]));
  ASSERT_TRUE(back);
  const auto& results = std::get<Results>(*back);
  EXPECT_EQ(results.sequence, 3U);
  ASSERT_EQ(results.outcomes.size(), 1U);
  EXPECT_EQ(results.outcomes[0].reason, EndReason::timed_out);
  EXPECT_EQ(results.outcomes[0].exit_code, -15);
  EXPECT_EQ(results.outcomes[0].detail, "no space left\n");
  EXPECT_DOUBLE_EQ(results.done.at(0).duration_sum_s, 12.5);
}

TEST(Codec, WritesPlainMessagePack) {
  for (const Message& message : sample_messages()) {
    const std::string bytes = encode(message);
    const auto handle = msgpack::unpack(bytes.data(), bytes.size());
    ASSERT_EQ(handle.get().type, msgpack::type::ARRAY);
    EXPECT_EQ(handle.get().via.array.ptr[0].as<std::size_t>(), message.index());
  }
}

// Bytes as they were stored once.
TEST(Codec, ReadsStoredBytes) {
  const std::string acknowledge("\x92\x08\xcd\x01\x00", 5);
  EXPECT_EQ(encode(Acknowledge{256}), acknowledge);
  const std::string leases("\x92\x07\x91\x9e\x01\x02\x03\x04\x05\xc3\xff\x00\x00\x00\x00\x90\x00\x90", 18);
  EXPECT_EQ(encode(Leases{{{1, 2, 3, 4, 5, true, -1}}}), leases);
  EXPECT_EQ(encode(Drain{}), "\x91\x0a");
  // A question: [13, [alternative, fields]]; an answer: [14, [alternative, fields]].
  EXPECT_EQ(encode(Query{StatusRequest{}}), std::string("\x92\x0d\x92\x00\x90", 5));
  EXPECT_EQ(encode(done_answer(7, 1)), "\x92\x0e\x92\x01\x92\x07\x01");
}

TEST(Codec, RefusesEveryTruncation) {
  for (const Message& message : all_messages()) {
    const std::string bytes = encode(message);
    const std::size_t step = bytes.size() > 5000 ? 997 : 1;
    for (std::size_t length = 0; length < bytes.size(); length += step) {
      EXPECT_FALSE(decode(std::string_view(bytes).substr(0, length))) << "kind " << message.index();
    }
    EXPECT_FALSE(decode(bytes + '\0'));
  }
}

TEST(Codec, SurvivesRandomMutation) {
  std::uint64_t counter = 0;
  const auto random = [&](std::uint64_t below) { return hash64(20240, counter++) % below; };
  std::vector<std::string> encoded;
  for (const Message& message : all_messages()) encoded.push_back(encode(message));
  std::erase_if(encoded, [](const std::string& bytes) { return bytes.size() > 5000; });
  for (int round = 0; round < 40'000; ++round) {
    std::string bytes = encoded[random(encoded.size())];
    for (std::uint64_t change = 0, changes = 1 + random(4); change < changes && !bytes.empty(); ++change) {
      const std::size_t at = random(bytes.size());
      switch (random(3)) {
        case 0:
          bytes[at] = static_cast<char>(random(256));
          break;
        case 1:
          bytes.erase(at, 1 + random(3));
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random(256)));
          break;
      }
    }
    // Bytes that still decode must be a message: it can be written and read again.
    if (const auto message = decode(bytes)) {
      EXPECT_TRUE(decode(encode(*message)));
    }
  }
}

TEST(Codec, SurvivesRandomBytes) {
  std::uint64_t counter = 0;
  const auto random = [&](std::uint64_t below) { return hash64(20241, counter++) % below; };
  for (int round = 0; round < 40'000; ++round) {
    // Arrays of small numbers come closest to messages.
    std::string bytes(1, static_cast<char>(0x90 + random(16)));
    bytes.push_back(static_cast<char>(random(20)));
    for (std::uint64_t i = 0, length = random(60); i < length; ++i) {
      const std::uint64_t kind = random(3);
      bytes.push_back(static_cast<char>(kind == 0   ? random(256)
                                        : kind == 1 ? 0x90 + random(16)
                                                    : random(16)));
    }
    if (const auto message = decode(bytes)) {
      EXPECT_TRUE(decode(encode(*message)));
    }
  }
}

TEST(Codec, BelievesNoLength) {
  // An array of 2^32 - 1 leases in a few bytes; a string as long.
  EXPECT_FALSE(decode(std::string("\x92\x07\xdd\xff\xff\xff\xff", 7)));
  EXPECT_FALSE(
      decode(std::string("\x92\x05\xdb\xff\xff\xff\xff"
                         "abc",
                         10)));
  // Arrays in arrays without end.
  EXPECT_FALSE(decode(std::string(1 << 20, '\x91')));
  EXPECT_FALSE(decode(std::string(1 << 20, '\xdd')));
  EXPECT_FALSE(decode(std::string(kMaxMessageBytes + 1, '\x91')));
  EXPECT_FALSE(decode(""));
}

TEST(Codec, RefusesNumbersOutOfRange) {
  EXPECT_FALSE(decode(std::string("\x92\x10\x01", 3)));  // a kind that is none
  EXPECT_FALSE(decode(std::string("\x92\x08\xff", 3)));  // a negative sequence
  EXPECT_FALSE(decode(
      std::string("\x92\x07\x91\x97\x01\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x03\x04\x05\xc3\x00", 19)));
  Outcome outcome;
  outcome.exit_code = std::numeric_limits<std::int32_t>::min();
  const auto back = decode(encode(Results{1, {}, {outcome}, {}}));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<Results>(*back).outcomes[0].exit_code, outcome.exit_code);
}

}  // namespace
}  // namespace wflow::engine::wire
