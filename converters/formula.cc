// SPDX-License-Identifier: Apache-2.0
#include "converters/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <initializer_list>
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

double truth(bool value) {
  return value ? 1 : 0;
}

// Applies an operation to `count` operands of each kind; the result replaces the first.
using Apply = void (*)(double* first, const double* second, const double* third, std::size_t count);

template <typename Function>
constexpr Apply one(Function) {
  return [](double* a, const double*, const double*, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = Function{}(a[i]);
  };
}
template <typename Function>
constexpr Apply two(Function) {
  return [](double* a, const double* b, const double*, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = Function{}(a[i], b[i]);
  };
}
constexpr Apply select() {
  return [](double* a, const double* b, const double* c, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) a[i] = a[i] != 0 ? b[i] : c[i];
  };
}

}  // namespace

struct Formula::Operation {
  std::string_view name;
  std::size_t operands;
  Apply apply;
  bool is_function = false;  // written as name(x, y); the others are operators
};

std::span<const Formula::Operation> Formula::operations() {
  static constexpr Operation kOperations[] = {
      {"min", 2, two([](double x, double y) { return std::isnan(x) || x < y ? x : y; }), true},
      {"max", 2, two([](double x, double y) { return std::isnan(x) || x > y ? x : y; }), true},
      {"atan2", 2, two([](double x, double y) { return std::atan2(x, y); }), true},
      {"where", 3, select(), true},
      {"exp", 1, one([](double x) { return std::exp(x); }), true},
      {"expm1", 1, one([](double x) { return std::expm1(x); }), true},
      {"log", 1, one([](double x) { return std::log(x); }), true},
      {"log1p", 1, one([](double x) { return std::log1p(x); }), true},
      {"log10", 1, one([](double x) { return std::log10(x); }), true},
      {"log2", 1, one([](double x) { return std::log2(x); }), true},
      {"sqrt", 1, one([](double x) { return std::sqrt(x); }), true},
      {"abs", 1, one([](double x) { return std::abs(x); }), true},
      {"sin", 1, one([](double x) { return std::sin(x); }), true},
      {"cos", 1, one([](double x) { return std::cos(x); }), true},
      {"tan", 1, one([](double x) { return std::tan(x); }), true},
      {"sinh", 1, one([](double x) { return std::sinh(x); }), true},
      {"cosh", 1, one([](double x) { return std::cosh(x); }), true},
      {"tanh", 1, one([](double x) { return std::tanh(x); }), true},
      {"asinh", 1, one([](double x) { return std::asinh(x); }), true},
      {"atan", 1, one([](double x) { return std::atan(x); }), true},
      {"floor", 1, one([](double x) { return std::floor(x); }), true},
      {"ceil", 1, one([](double x) { return std::ceil(x); }), true},
      {"round", 1, one([](double x) { return std::round(x); }), true},
      {"arcsinh", 1, one([](double x) { return std::asinh(x); }), true},
      {"ln", 1, one([](double x) { return std::log(x); }), true},
      {"-x", 1, one([](double x) { return -x; })},
      {"not", 1, one([](double x) { return truth(x == 0); })},
      {"+", 2, two([](double x, double y) { return x + y; })},
      {"-", 2, two([](double x, double y) { return x - y; })},
      {"*", 2, two([](double x, double y) { return x * y; })},
      {"/", 2, two([](double x, double y) { return x / y; })},
      {"%", 2, two([](double x, double y) { return x - y * std::floor(x / y); })},
      {"^", 2, two([](double x, double y) { return std::pow(x, y); })},
      {"<=", 2, two([](double x, double y) { return truth(x <= y); })},
      {">=", 2, two([](double x, double y) { return truth(x >= y); })},
      {"==", 2, two([](double x, double y) { return truth(x == y); })},
      {"!=", 2, two([](double x, double y) { return truth(x != y); })},
      {"<", 2, two([](double x, double y) { return truth(x < y); })},
      {">", 2, two([](double x, double y) { return truth(x > y); })},
      {"and", 2, two([](double x, double y) { return truth(x != 0 && y != 0); })},
      {"or", 2, two([](double x, double y) { return truth(x != 0 || y != 0); })},
  };
  return kOperations;
}

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
  using Operation = Formula::Operation;

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

  static const Operation* find(std::string_view name) {
    const auto found = std::ranges::find(Formula::operations(), name, &Operation::name);
    return found == Formula::operations().end() ? nullptr : &*found;
  }
  void push(const Operation* operation) {
    formula_.steps_.push_back({operation});
    stack_ -= operation->operands - 1;
  }
  void push(std::string_view name) { push(find(name)); }
  void grow() { formula_.depth_ = std::max(formula_.depth_, ++stack_); }
  void push_number(double value) {
    formula_.steps_.push_back({nullptr, value});
    grow();
  }
  void push_variable(const std::string& name) {
    auto& names = formula_.variables_;
    const auto found = std::find(names.begin(), names.end(), name);
    formula_.steps_.push_back({nullptr, 0, static_cast<std::size_t>(found - names.begin()), true});
    if (found == names.end()) names.push_back(name);
    grow();
  }

  void either() {
    both();
    while (take_word("or")) {
      both();
      push("or");
    }
  }
  void both() {
    inverse();
    while (take_word("and")) {
      inverse();
      push("and");
    }
  }
  void inverse() {
    if (!take_word("not")) return comparison();
    const Deeper deeper(*this);
    inverse();
    push("not");
  }
  void comparison() {
    sum();
    for (const std::string_view symbol : {"<=", ">=", "==", "!=", "<", ">"}) {
      if (!take(symbol)) continue;
      sum();
      return push(symbol);
    }
  }
  void sum() { chain({"+", "-"}, &FormulaParser::product); }
  void product() { chain({"*", "/", "%"}, &FormulaParser::sign); }
  // Operators of one rank, from the left.
  void chain(std::initializer_list<std::string_view> symbols, void (FormulaParser::*operand)()) {
    (this->*operand)();
    while (true) {
      const auto symbol = std::ranges::find_if(symbols, [this](std::string_view s) { return take(s); });
      if (symbol == symbols.end()) return;
      (this->*operand)();
      push(*symbol);
    }
  }
  void sign() {
    if (take("-")) {
      const Deeper deeper(*this);
      sign();
      push("-x");
    } else {
      power();
    }
  }
  void power() {
    primary();
    if (!take("^")) return;
    const Deeper deeper(*this);
    sign();
    push("^");
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
    const Operation* operation = find(function);
    if (operation == nullptr || !operation->is_function) {
      std::vector<std::string> names(kReductions.begin(), kReductions.end());
      for (const Operation& known : Formula::operations()) {
        if (known.is_function) names.emplace_back(known.name);
      }
      fail(fmt::format("there is no function '{}'{}", function, text::suggestion(function, names)));
    }
    const std::size_t wanted = operation->operands;
    const Deeper deeper(*this);
    for (std::size_t k = 0; k < wanted; ++k) {
      if (k > 0 && !take(",")) fail(fmt::format("{} takes {} values", function, wanted));
      either();
    }
    if (!take(")"))
      fail(fmt::format("a ) is missing behind the {} of {}", wanted == 1 ? "value" : "values", function));
    push(operation);
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

void Formula::evaluate(std::span<const std::span<const double>> values, std::span<double> result) const {
  WFLOW_CHECK(values.size() == variables_.size());
  std::vector<double> stack(depth_ * kBlock);
  for (std::size_t start = 0; start < result.size(); start += kBlock) {
    const std::size_t count = std::min(kBlock, result.size() - start);
    double* top = stack.data();  // behind the topmost entry
    for (const Step& step : steps_) {
      if (step.operation != nullptr) {
        top -= (step.operation->operands - 1) * kBlock;
        step.operation->apply(top - kBlock, top, top + kBlock, count);
        continue;
      }
      const std::span<const double> given =
          step.is_variable ? values[step.variable] : std::span(&step.number, 1);
      if (given.size() == 1) {
        std::fill_n(top, count, given[0]);
      } else {
        std::copy_n(given.data() + start, count, top);
      }
      top += kBlock;
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
