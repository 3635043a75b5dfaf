// SPDX-License-Identifier: Apache-2.0
#include "converters/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace wflow::converters {

namespace {

constexpr std::size_t kMostText = 2000;
constexpr std::size_t kMostDepth = 100;  // limit of nested brackets
constexpr std::size_t kBlock = 256;      // values computed together: they stay in the first-level cache

constexpr std::array<std::string_view, 5> kReductions = {"min", "max", "mean", "sum", "std"};

bool is_reduction(std::string_view name) {
  return std::find(kReductions.begin(), kReductions.end(), name) != kReductions.end();
}

}  // namespace

class FormulaParser {
 public:
  explicit FormulaParser(std::string_view text) : text_(text) {}

  Formula run() {
    if (text_.size() > kMostText) fail("it is longer than 2,000 letters");
    either();
    skip_blanks();
    if (at_ < text_.size()) fail(fmt::format("'{}' was not expected here", rest()));
    return std::move(formula_);
  }

 private:
  using Op = Formula::Op;

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::spec, fmt::format("the formula '{}' is wrong at letter {}: {}",
                                            text::tail(std::string(text_), 200), at_ + 1, why));
  }
  std::string rest() const { return std::string(text_.substr(at_, 20)); }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view symbol) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  static bool in_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  }
  // A word that is not the beginning of a longer one.
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    if (at_ + word.size() < text_.size() && in_name(text_[at_ + word.size()])) return false;
    at_ += word.size();
    return true;
  }

  void push(Op op, std::size_t operands) {
    formula_.steps_.push_back({op, 0, 0});
    stack_ -= operands - 1;
  }
  void grow() { formula_.depth_ = std::max(formula_.depth_, ++stack_); }
  void push_number(double value) {
    formula_.steps_.push_back({Op::number, value, 0});
    grow();
  }
  void push_variable(const std::string& name) {
    auto& names = formula_.variables_;
    const auto found = std::find(names.begin(), names.end(), name);
    formula_.steps_.push_back({Op::variable, 0, static_cast<std::size_t>(found - names.begin())});
    if (found == names.end()) names.push_back(name);
    grow();
  }

  void either() {
    both();
    while (take_word("or")) {
      both();
      push(Op::logical_or, 2);
    }
  }
  void both() {
    inverse();
    while (take_word("and")) {
      inverse();
      push(Op::logical_and, 2);
    }
  }
  void inverse() {
    if (!take_word("not")) return comparison();
    const Deeper deeper(*this);
    inverse();
    push(Op::logical_not, 1);
  }
  void comparison() {
    sum();
    static constexpr std::array<std::pair<std::string_view, Op>, 6> kSymbols = {
        std::pair{"<=", Op::less_equal}, std::pair{">=", Op::greater_equal}, std::pair{"==", Op::equal},
        std::pair{"!=", Op::not_equal},  std::pair{"<", Op::less},           std::pair{">", Op::greater}};
    for (const auto& [symbol, op] : kSymbols) {
      if (!take(symbol)) continue;
      sum();
      push(op, 2);
      return;
    }
  }
  void sum() {
    product();
    while (true) {
      const bool plus = take("+");
      if (!plus && !take("-")) return;
      product();
      push(plus ? Op::add : Op::subtract, 2);
    }
  }
  void product() {
    sign();
    while (true) {
      Op op = Op::multiply;
      if (take("*")) {
      } else if (take("/")) {
        op = Op::divide;
      } else if (take("%")) {
        op = Op::remainder;
      } else {
        return;
      }
      sign();
      push(op, 2);
    }
  }
  void sign() {
    if (take("-")) {
      const Deeper deeper(*this);
      sign();
      push(Op::negate, 1);
    } else {
      power();
    }
  }
  void power() {
    primary();
    if (!take("^")) return;
    const Deeper deeper(*this);
    sign();
    push(Op::power, 2);
  }

  // Limits the recursion, because users write the text.
  struct Deeper {
    explicit Deeper(FormulaParser& parser) : parser_(parser) {
      if (++parser_.brackets_ > kMostDepth) parser_.fail("it is nested more than 100 times");
    }
    ~Deeper() { --parser_.brackets_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    FormulaParser& parser_;
  };

  void primary() {
    skip_blanks();
    if (take("(")) {
      const Deeper deeper(*this);
      either();
      if (!take(")")) fail("a ) is missing");
      return;
    }
    if (at_ >= text_.size()) fail("it ends where a number or a name is expected");
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') return number();
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') return name();
    fail(fmt::format("a number or a name is expected, found '{}'", rest()));
  }

  void number() {
    std::size_t end = at_;
    const auto is = [&](auto test) { return end < text_.size() && test(text_[end]); };
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.'; };
    while (is(digit)) ++end;
    if (is([](char c) { return c == 'e' || c == 'E'; })) {
      ++end;
      if (is([](char c) { return c == '+' || c == '-'; })) ++end;
      while (is(digit)) ++end;
    }
    const auto value = text::to_real(text_.substr(at_, end - at_));
    if (!value) fail(fmt::format("'{}' is not a number", text_.substr(at_, end - at_)));
    at_ = end;
    push_number(*value);
  }

  void name() {
    std::size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    const std::string word(text_.substr(at_, end - at_));
    at_ = end;
    if (!take("(")) {
      if (word == "pi") return push_number(3.14159265358979323846);
      if (word == "or" || word == "and" || word == "not")
        fail(fmt::format("'{}' was not expected here", word));
      return push_variable(word);
    }
    call(word);
  }

  // The name in brackets, if nothing else is there.
  std::optional<std::string> lone_name() {
    skip_blanks();
    std::size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    if (end == at_ || std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return std::nullopt;
    std::string found(text_.substr(at_, end - at_));
    const std::size_t before = at_;
    at_ = end;
    if (take(")")) return found;
    at_ = before;
    return std::nullopt;
  }

  void call(const std::string& function) {
    if (is_reduction(function)) {
      if (const auto of = lone_name()) return push_variable(fmt::format("{}({})", function, *of));
      if (function != "min" && function != "max")
        fail(fmt::format("{} takes the name of a field: {}(u)", function, function));
    }
    static constexpr std::array<std::pair<std::string_view, Op>, 21> kOne = {
        std::pair{"exp", Op::exp},     std::pair{"expm1", Op::expm1},   std::pair{"log", Op::log},
        std::pair{"log1p", Op::log1p}, std::pair{"log10", Op::log10},   std::pair{"log2", Op::log2},
        std::pair{"sqrt", Op::sqrt},   std::pair{"abs", Op::abs},       std::pair{"sin", Op::sin},
        std::pair{"cos", Op::cos},     std::pair{"tan", Op::tan},       std::pair{"sinh", Op::sinh},
        std::pair{"cosh", Op::cosh},   std::pair{"tanh", Op::tanh},     std::pair{"asinh", Op::asinh},
        std::pair{"atan", Op::atan},   std::pair{"floor", Op::floor},   std::pair{"ceil", Op::ceil},
        std::pair{"round", Op::round}, std::pair{"arcsinh", Op::asinh}, std::pair{"ln", Op::log}};
    std::optional<Op> op;
    std::size_t wanted = 1;
    for (const auto& known : kOne) {
      if (known.first == function) op = known.second;
    }
    if (function == "min" || function == "max" || function == "atan2") {
      op = function == "min" ? Op::min : function == "max" ? Op::max : Op::atan2;
      wanted = 2;
    }
    if (function == "where") {
      op = Op::select;
      wanted = 3;
    }
    if (!op) {
      std::vector<std::string> names = {"min", "max", "mean", "sum", "std", "atan2", "where"};
      for (const auto& known : kOne) names.emplace_back(known.first);
      fail(fmt::format("there is no function '{}'{}", function, text::suggestion(function, names)));
    }
    const Deeper deeper(*this);
    for (std::size_t k = 0; k < wanted; ++k) {
      if (k > 0 && !take(",")) fail(fmt::format("{} takes {} values", function, wanted));
      either();
    }
    if (!take(")"))
      fail(fmt::format("a ) is missing behind the {} of {}", wanted == 1 ? "value" : "values", function));
    push(*op, wanted);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t brackets_ = 0;
  std::size_t stack_ = 0;
  Formula formula_;
};

Formula Formula::parse(std::string_view text) {
  return FormulaParser(text).run();
}

namespace {

template <typename Function>
void map_one(double* first, std::size_t count, Function function) {
  for (std::size_t i = 0; i < count; ++i) first[i] = function(first[i]);
}
template <typename Function>
void map_two(double* first, const double* second, std::size_t count, Function function) {
  for (std::size_t i = 0; i < count; ++i) first[i] = function(first[i], second[i]);
}
double truth(bool value) {
  return value ? 1 : 0;
}

}  // namespace

void Formula::apply(Op op, double* a, const double* b, const double* c, std::size_t n) {
  switch (op) {
    case Op::number:
    case Op::variable:
      return;
    case Op::negate:
      return map_one(a, n, [](double x) { return -x; });
    case Op::logical_not:
      return map_one(a, n, [](double x) { return truth(x == 0); });
    case Op::add:
      return map_two(a, b, n, [](double x, double y) { return x + y; });
    case Op::subtract:
      return map_two(a, b, n, [](double x, double y) { return x - y; });
    case Op::multiply:
      return map_two(a, b, n, [](double x, double y) { return x * y; });
    case Op::divide:
      return map_two(a, b, n, [](double x, double y) { return x / y; });
    case Op::remainder:
      return map_two(a, b, n, [](double x, double y) { return x - y * std::floor(x / y); });
    case Op::power:
      return map_two(a, b, n, [](double x, double y) { return std::pow(x, y); });
    case Op::less:
      return map_two(a, b, n, [](double x, double y) { return truth(x < y); });
    case Op::less_equal:
      return map_two(a, b, n, [](double x, double y) { return truth(x <= y); });
    case Op::greater:
      return map_two(a, b, n, [](double x, double y) { return truth(x > y); });
    case Op::greater_equal:
      return map_two(a, b, n, [](double x, double y) { return truth(x >= y); });
    case Op::equal:
      return map_two(a, b, n, [](double x, double y) { return truth(x == y); });
    case Op::not_equal:
      return map_two(a, b, n, [](double x, double y) { return truth(x != y); });
    case Op::logical_and:
      return map_two(a, b, n, [](double x, double y) { return truth(x != 0 && y != 0); });
    case Op::logical_or:
      return map_two(a, b, n, [](double x, double y) { return truth(x != 0 || y != 0); });
    case Op::exp:
      return map_one(a, n, [](double x) { return std::exp(x); });
    case Op::expm1:
      return map_one(a, n, [](double x) { return std::expm1(x); });
    case Op::log:
      return map_one(a, n, [](double x) { return std::log(x); });
    case Op::log1p:
      return map_one(a, n, [](double x) { return std::log1p(x); });
    case Op::log10:
      return map_one(a, n, [](double x) { return std::log10(x); });
    case Op::log2:
      return map_one(a, n, [](double x) { return std::log2(x); });
    case Op::sqrt:
      return map_one(a, n, [](double x) { return std::sqrt(x); });
    case Op::abs:
      return map_one(a, n, [](double x) { return std::abs(x); });
    case Op::sin:
      return map_one(a, n, [](double x) { return std::sin(x); });
    case Op::cos:
      return map_one(a, n, [](double x) { return std::cos(x); });
    case Op::tan:
      return map_one(a, n, [](double x) { return std::tan(x); });
    case Op::sinh:
      return map_one(a, n, [](double x) { return std::sinh(x); });
    case Op::cosh:
      return map_one(a, n, [](double x) { return std::cosh(x); });
    case Op::tanh:
      return map_one(a, n, [](double x) { return std::tanh(x); });
    case Op::asinh:
      return map_one(a, n, [](double x) { return std::asinh(x); });
    case Op::atan:
      return map_one(a, n, [](double x) { return std::atan(x); });
    case Op::floor:
      return map_one(a, n, [](double x) { return std::floor(x); });
    case Op::ceil:
      return map_one(a, n, [](double x) { return std::ceil(x); });
    case Op::round:
      return map_one(a, n, [](double x) { return std::round(x); });
    case Op::min:
      return map_two(a, b, n, [](double x, double y) { return std::isnan(x) || x < y ? x : y; });
    case Op::max:
      return map_two(a, b, n, [](double x, double y) { return std::isnan(x) || x > y ? x : y; });
    case Op::atan2:
      return map_two(a, b, n, [](double x, double y) { return std::atan2(x, y); });
    case Op::select:
      for (std::size_t i = 0; i < n; ++i) a[i] = a[i] != 0 ? b[i] : c[i];
      return;
  }
}

void Formula::evaluate(std::span<const std::span<const double>> values, std::span<double> result) const {
  WFLOW_CHECK(values.size() == variables_.size());
  std::vector<double> stack(depth_ * kBlock);
  for (std::size_t start = 0; start < result.size(); start += kBlock) {
    const std::size_t count = std::min(kBlock, result.size() - start);
    double* top = stack.data();  // behind the topmost entry
    for (const Step& step : steps_) {
      if (step.op == Op::number) {
        std::fill_n(top, count, step.number);
        top += kBlock;
      } else if (step.op == Op::variable) {
        const std::span<const double> given = values[step.variable];
        if (given.size() == 1) {
          std::fill_n(top, count, given[0]);
        } else {
          std::copy_n(given.data() + start, count, top);
        }
        top += kBlock;
      } else {
        const std::size_t operands = step.op == Op::select ? 3 : is_binary(step.op) ? 2 : 1;
        top -= (operands - 1) * kBlock;
        apply(step.op, top - kBlock, top, top + kBlock, count);
      }
    }
    std::copy_n(stack.data(), count, result.data() + start);
  }
}

double reduce(std::string_view function, std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  double least = values[0];
  double most = values[0];
  for (const double value : values) {
    sum += value;
    least = std::isnan(value) || value < least ? value : least;
    most = std::isnan(value) || value > most ? value : most;
  }
  if (function == "sum") return sum;
  if (function == "min") return least;
  if (function == "max") return most;
  const double mean = sum / static_cast<double>(values.size());
  if (function == "mean") return mean;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

VariableName split_variable(const std::string& variable) {
  const auto bracket = variable.find('(');
  if (bracket == std::string::npos) return {"", variable};
  return {variable.substr(0, bracket), variable.substr(bracket + 1, variable.size() - bracket - 2)};
}

}  // namespace wflow::converters
