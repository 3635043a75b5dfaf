// SPDX-License-Identifier: Apache-2.0
#include "converters/input/arrange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "converters/config.h"

namespace wflow::converters {

namespace {

constexpr std::string_view kOrder = "CTDHW";  // slowest axis first
constexpr std::array<std::string_view, 5> kLayoutOfRank = {"", "T", "HW", "DHW", "CDHW"};

std::string shape_text(const std::vector<std::size_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::size_t product(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

std::string spelled(std::string_view layout) {
  std::string text;
  for (const char letter : layout) text += (text.empty() ? "" : ", ") + std::string(1, letter);
  return text;
}

// One array of the field while it is arranged.
struct Arranged {
  Array array;
  std::string layout;
  std::string from;
  std::vector<std::string> components;  // names of the entries of C, if the format has them
};

class Arranger {
 public:
  Arranger(const FieldConfig& field, const ArrangeOptions& options) : field_(field), options_(options) {}

  Arranged one(InputArray input) const {
    Arranged result{std::move(input.array), {}, {}, input.field.components};
    std::vector<std::size_t>& shape = result.array.shape;
    bool components = !input.field.components.empty();
    reshape(result, components);
    check_not_empty(shape);
    const bool merged = choose_layout(input.field, components, result);
    drop_axes(result);
    to_order(result, merged);
    return result;
  }

  Arranged join(std::vector<Arranged> parts) const {
    Arranged result = std::move(parts.front());
    if (parts.size() == 1) return result;
    const bool has_channels = result.layout.starts_with('C');
    for (std::size_t k = 1; k < parts.size(); ++k) {
      const Arranged& part = parts[k];
      if (part.array.shape != result.array.shape || part.array.dtype != result.array.dtype) {
        throw Error(ExitCode::data,
                    fmt::format("{}: {} holds {} {}, and {} {} {}; files of one field must be alike",
                                options_.place(), field_.files[k], shape_text(part.array.shape),
                                dtype_name(part.array.dtype), field_.files[0], shape_text(result.array.shape),
                                dtype_name(result.array.dtype)));
      }
    }
    const std::vector<std::size_t> one = result.array.shape;
    for (std::size_t k = 1; k < parts.size(); ++k)
      result.array.bytes.insert(result.array.bytes.end(), parts[k].array.bytes.begin(),
                                parts[k].array.bytes.end());
    if (has_channels) {
      result.array.shape[0] *= parts.size();
      result.components.clear();
    } else {
      if (one.size() >= kMostRank) refuse(one, "and several files of it would have more than four axes");
      result.array.shape.insert(result.array.shape.begin(), parts.size());
      result.layout = "C" + result.layout;
      result.components = field_.files;
    }
    return result;
  }

  [[noreturn]] void refuse(const std::vector<std::size_t>& shape, const std::string& what) const {
    throw Error(ExitCode::data,
                fmt::format("{} has shape {}, {}", options_.place(), shape_text(shape), what));
  }

 private:
  void check_not_empty(const std::vector<std::size_t>& shape) const {
    if (std::find(shape.begin(), shape.end(), std::size_t{0}) != shape.end())
      refuse(shape, "but one to four axes with values are expected");
  }

  void reshape(Arranged& result, bool& components) const {
    std::vector<std::size_t>& shape = result.array.shape;
    if (field_.shape.empty()) return;
    if (options_.short_form) {
      if (normal_shape(shape.empty() ? std::vector<std::size_t>{1} : shape) != normal_shape(field_.shape))
        refuse(shape, "expected " + shape_text(field_.shape));
      return;
    }
    std::vector<std::size_t> wanted = field_.shape;
    if (components && product(wanted) * result.components.size() == product(shape)) {
      wanted.push_back(result.components.size());
    } else if (components) {
      components = false;
      result.components.clear();
    }
    if (product(wanted) != product(shape)) refuse(shape, "expected " + shape_text(field_.shape));
    shape = wanted;
  }

  // Letters for all axes; true if components follow an axis C that the layout names itself.
  bool choose_layout(const InputField& input, bool components, Arranged& result) const {
    std::vector<std::size_t>& shape = result.array.shape;
    const std::size_t own = shape.size() - (components ? 1 : 0);  // axes without the components
    if (!field_.layout.empty()) {
      result.from = "layout";
      result.layout = field_.layout;
      if (field_.layout.size() == shape.size()) return false;
      if (!components || field_.layout.size() != own) {
        refuse(shape, fmt::format("and layout: {} names {} axes; write a letter an axis, slowest first (_ "
                                  "drops one of length 1)",
                                  field_.layout, field_.layout.size()));
      }
      const bool merged = field_.layout.find('C') != std::string::npos;
      result.layout += merged ? 'c' : 'C';
      return merged;
    }
    const bool reshaped = !field_.shape.empty() && !options_.short_form;
    if (!input.axes.empty() && !reshaped && input.axes.size() == own) {
      result.from = "format";
      result.layout = input.axes + (components ? "C" : "");
      return false;
    }
    result.from = "rank";
    const std::size_t most = kMostRank + (components ? 1 : 0);
    while (shape.size() > most && shape.front() == 1) shape.erase(shape.begin());
    if (shape.size() > most) {
      refuse(shape,
             "but one to four axes with values are expected; 'layout' drops axes of length 1 (_), and "
             "'slice' takes "
             "a part");
    }
    const std::size_t rank = shape.size() - (components ? 1 : 0);
    // Named channels belong to the first axis if it has as many entries.
    const bool named = !components && !field_.channels.empty() && field_.files.size() < 2;
    if (named && rank < kMostRank && (rank == 0 || shape.front() != field_.channels.size())) {
      if (field_.channels.size() != 1) {
        refuse(shape,
               fmt::format(
                   "but {} channels are named; say which axis they are with 'layout', such as layout: {}C",
                   field_.channels.size(), rank > 0 ? kLayoutOfRank[rank - 1] : ""));
      }
      result.layout = kLayoutOfRank[rank];
      return false;
    }
    result.layout = named && rank < kMostRank ? "C" + std::string(kLayoutOfRank[rank - 1])
                                              : std::string(kLayoutOfRank[rank]);
    if (components) result.layout += result.layout.find('C') == std::string::npos ? 'C' : 'c';
    return components && result.layout.back() == 'c';
  }

  void drop_axes(Arranged& result) const {
    for (std::size_t k = result.layout.size(); k-- > 0;) {
      if (result.layout[k] != '_') continue;
      if (result.array.shape[k] != 1)
        refuse(
            result.array.shape,
            fmt::format(
                "and layout: {} drops its axis {}, which is not of length 1; 'slice' takes one index of it",
                field_.layout, k));
      result.array.shape.erase(result.array.shape.begin() + static_cast<std::ptrdiff_t>(k));
      result.layout.erase(k, 1);
    }
  }

  static void to_order(Arranged& result, bool merged) {
    std::vector<std::size_t> order;
    std::string layout;
    for (const char letter : kOrder) {
      const auto at = result.layout.find(letter);
      if (at == std::string::npos) continue;
      order.push_back(at);
      layout += letter;
      if (letter == 'C' && merged) order.push_back(result.layout.find('c'));
    }
    transpose(result.array, order);
    if (merged) {
      auto& shape = result.array.shape;
      shape[0] *= shape[1];
      shape.erase(shape.begin() + 1);
      result.components.clear();
    }
    result.layout = layout;
  }

  const FieldConfig& field_;
  const ArrangeOptions& options_;
};

// Pads shorter axes at their ends.
FieldValue pad(const FieldConfig& field, const std::string& place, FieldValue& value) {
  const std::vector<std::size_t>& lengths = field.pad;
  FieldForm& form = value.form;
  const auto fits = [&] {
    if (lengths.size() != form.shape.size()) return false;
    for (std::size_t k = 0; k < lengths.size(); ++k) {
      if (form.shape[k] > lengths[k]) return false;
    }
    return true;
  };
  if (!fits())
    throw Error(ExitCode::data, fmt::format("{} has shape {}, which does not fit into pad: [{}]", place,
                                            shape_text(form.shape), fmt::join(lengths, ", ")));
  const std::size_t width = dtype_size(form.dtype);
  if (!array_bytes(form.dtype, lengths))
    throw Error(ExitCode::spec, "'pad' makes more than 4 GiB, which no sample may have");
  std::vector<std::uint8_t> filler(width);
  with_type(form.dtype, [&](auto zero) {
    zero = static_cast<decltype(zero)>(field.pad_value);
    std::memcpy(filler.data(), &zero, sizeof zero);
  });
  const bool channels = form.layout.starts_with('C');
  FieldValue mask;
  mask.form.name = form.name + "_mask";
  mask.form.role = form.role;
  mask.form.dtype = DType::uint8;
  mask.form.layout = channels ? form.layout.substr(1) : form.layout;
  mask.form.layout_from = form.layout_from;
  mask.form.shape.assign(lengths.begin() + (channels ? 1 : 0), lengths.end());
  mask.bytes.assign(product(mask.form.shape), 0);
  std::vector<std::uint8_t> bytes(product(lengths) * width);
  std::vector<std::size_t> index(lengths.size(), 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < bytes.size(); to += width) {
    bool inside = true;
    for (std::size_t k = 0; k < index.size(); ++k) inside &= index[k] < form.shape[k];
    std::memcpy(bytes.data() + to, inside ? value.bytes.data() + from : filler.data(), width);
    if (inside) {
      from += width;
      std::size_t place_in_mask = 0;
      for (std::size_t k = channels ? 1 : 0; k < index.size(); ++k)
        place_in_mask = place_in_mask * lengths[k] + index[k];
      mask.bytes[place_in_mask] = 1;
    }
    for (std::size_t k = index.size(); k-- > 0;) {
      if (++index[k] < lengths[k]) break;
      index[k] = 0;
    }
  }
  value.bytes = std::move(bytes);
  form.shape = lengths;
  return mask;
}

// Marks the ragged axis of the field. Returns its mask, which is 1 everywhere at the sample's own length.
FieldValue make_ragged(const FieldConfig& field, const std::string& place, FieldForm& form) {
  const std::size_t axis = form.layout.find(field.ragged);
  if (axis == std::string::npos) {
    throw Error(ExitCode::data,
                fmt::format("{} has the axes {}, none of which is the ragged {}; 'layout' names "
                            "the axes of the file, slowest first",
                            place, spelled(form.layout), field.ragged));
  }
  const std::size_t length = form.shape[axis];
  form.ragged = RaggedAxis{axis, length, length, field.pad_value};
  FieldValue mask;
  const std::size_t channels = form.layout.starts_with('C') ? 1 : 0;
  mask.form.name = form.name + "_mask";
  mask.form.role = form.role;
  mask.form.dtype = DType::uint8;
  mask.form.layout = form.layout.substr(channels);
  mask.form.layout_from = form.layout_from;
  mask.form.shape.assign(form.shape.begin() + static_cast<std::ptrdiff_t>(channels), form.shape.end());
  mask.form.ragged = RaggedAxis{axis - channels, length, length, 0};
  mask.form.mask = true;
  mask.bytes.assign(product(mask.form.shape), 1);
  return mask;
}

void to_short_form(FieldForm& form) {
  std::array<std::size_t, 4> shape = {1, 1, 1, 1};
  std::size_t at = 4;
  for (std::size_t k = form.shape.size(); k-- > 0;) {
    if (form.layout[k] == 'C') {
      shape[0] = form.shape[k];
    } else if (at > 0) {
      shape[--at] = form.shape[k];
    }
  }
  form.shape.assign(shape.begin(), shape.end());
  form.layout = "CDHW";
}

void name_channels(const FieldConfig& field, const Arranger& arranger,
                   const std::vector<std::string>& components, FieldForm& form) {
  form.channels = field.channels.empty() ? components : field.channels;
  if (field.channels.empty() || field.channels.size() == form.channel_count()) return;
  arranger.refuse(
      form.shape,
      fmt::format(
          "but {} channels are named; say which axis they are with 'layout', a letter an axis, slowest first",
          field.channels.size()));
}

}  // namespace

std::size_t FieldForm::values() const {
  return product(shape);
}

void FieldForm::include_length(std::size_t least, std::size_t most) {
  if (!ragged || most == 0) return;
  ragged->least = ragged->most == 0 ? least : std::min(ragged->least, least);
  ragged->most = std::max(ragged->most, most);
  shape[ragged->axis] = ragged->most;
}

void FieldForm::forget_lengths() {
  if (!ragged) return;
  ragged->least = ragged->most = 0;
}

bool FieldForm::same_shape(const FieldForm& other) const {
  if (!ragged || !other.ragged) return !ragged && !other.ragged && shape == other.shape;
  if (ragged->axis != other.ragged->axis || shape.size() != other.shape.size()) return false;
  std::vector<std::size_t> adjusted = other.shape;
  adjusted[ragged->axis] = shape[ragged->axis];
  return shape == adjusted;
}

std::string ArrangeOptions::place() const {
  return row ? fmt::format("{} (row {})", file.string(), *row) : file.string();
}

std::string describe(const FieldForm& form) {
  if (form.shape.empty()) return fmt::format("one number, {}", dtype_name(form.dtype));
  return fmt::format("({}) {}, axes {}", fmt::join(form.shape, ", "), dtype_name(form.dtype),
                     spelled(form.layout));
}

std::vector<FieldValue> arrange(const FieldConfig& field, std::vector<InputArray> arrays,
                                const ArrangeOptions& options) {
  const Arranger arranger(field, options);
  std::string stored = arrays.front().field.stored;
  std::vector<Arranged> parts;
  for (InputArray& array : arrays) parts.push_back(arranger.one(std::move(array)));
  Arranged all = arranger.join(std::move(parts));
  const bool had_channels = all.layout.starts_with('C');
  TransformState state{std::move(all.array), std::move(all.layout), 1};
  try {
    apply_transforms(field.transforms, options.parameters, state);
    if (field.dtype) cast_values(state.array, *field.dtype);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", options.place(), error.what()));
  }
  if (!had_channels && state.layout.starts_with('C')) all.components.clear();
  std::vector<FieldValue> result(1);
  FieldForm& form = result[0].form;
  form = {.name = field.name,
          .role = field.role,
          .dtype = state.array.dtype,
          .shape = state.array.shape,
          .layout = state.layout,
          .layout_from = all.from,
          .channels = {},
          .units = field.units,
          .stored = std::move(stored),
          .narrow = {},
          .compressed = true,
          .pieces = state.pieces};
  result[0].bytes = std::move(state.array.bytes);
  if (options.short_form) to_short_form(form);
  name_channels(field, arranger, all.components, form);
  if (!field.pad.empty()) result.push_back(pad(field, options.place(), result[0]));
  if (!field.ragged.empty()) result.push_back(make_ragged(field, options.place(), form));
  return result;
}

FieldValue parameter_field(const FieldConfig& field, const std::vector<std::string>& names,
                           const std::vector<double>& values, const Parameters& parameters) {
  FieldValue result;
  FieldForm& form = result.form;
  form.name = field.name;
  form.role = field.role;
  form.dtype = DType::float64;
  form.units = field.units;
  form.layout_from = "format";
  if (field.vector) {
    form.shape = {values.size()};
    form.layout = "C";
    form.channels = names;
  }
  Array array{DType::float64, form.shape, std::vector<std::uint8_t>(values.size() * sizeof(double))};
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  TransformState state{std::move(array), form.layout, 1};
  apply_transforms(field.transforms, parameters, state);
  if (field.dtype) cast_values(state.array, *field.dtype);
  if (state.array.shape != form.shape) form.channels.clear();
  form.dtype = state.array.dtype;
  form.shape = state.array.shape;
  form.layout = state.layout;
  result.bytes = std::move(state.array.bytes);
  return result;
}

}  // namespace wflow::converters
