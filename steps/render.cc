// SPDX-License-Identifier: Apache-2.0
#include "steps/render.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/csv.h"
#include "base/error.h"
#include "base/text.h"

namespace wflow::steps {

namespace {

using Kind = specs::Piece::Kind;

void append_vector(std::string& text, const specs::SampleTable& samples, std::uint64_t row) {
  for (std::size_t column = 0; column < samples.columns().size(); ++column) {
    if (column > 0) text += ' ';
    text += samples.text(row, column);
  }
}

// What has a cell of one column.
bool is_cell(Kind kind) {
  return kind == Kind::column || kind == Kind::quoted_column;
}

}  // namespace

bool has_sample_tokens(const specs::Pieces& pieces) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const auto& piece) { return piece.kind != Kind::literal; });
}

void check_columns(const specs::Pieces& pieces, const specs::SampleTable* samples) {
  for (const specs::Piece& piece : pieces) {
    if (!is_cell(piece.kind) && piece.kind != Kind::sample_vector) continue;
    if (samples == nullptr || (is_cell(piece.kind) && piece.column >= samples->columns().size())) {
      throw Error(ExitCode::data,
                  fmt::format("a command asks for sample column {}, and the table has {} of them",
                              piece.column, samples ? samples->columns().size() : 0));
    }
  }
}

std::string render(const specs::Pieces& pieces, const specs::SampleTable* samples, std::uint64_t row,
                   std::string_view sample_path, const BundleRows* bundle) {
  std::string text;
  for (const specs::Piece& piece : pieces) {
    switch (piece.kind) {
      case Kind::literal:
        text += piece.text;
        break;
      case Kind::column:
        text += samples->text(row, piece.column);
        break;
      case Kind::quoted_column:
        text += text::shell_quote(samples->text(row, piece.column));
        break;
      case Kind::sample_id:
        text += std::to_string(row);
        break;
      case Kind::sample_path:
        text += sample_path;
        break;
      case Kind::sample_vector:
        append_vector(text, *samples, row);
        break;
      case Kind::samples_file:
      case Kind::first_sample:
      case Kind::sample_count:
        if (bundle == nullptr) {
          throw Error(ExitCode::data,
                      "a command asks for the samples of a bundle, and its step has no bundle:");
        }
        text += piece.kind == Kind::samples_file   ? bundle->file
                : piece.kind == Kind::first_sample ? std::to_string(bundle->first)
                                                   : std::to_string(bundle->count);
        break;
    }
  }
  return text;
}

std::string samples_csv(const specs::SampleTable& samples, std::uint64_t first, std::uint64_t count) {
  const std::size_t columns = samples.columns().size();
  std::string text = "MERLIN_SAMPLE_ID";
  for (const std::string& name : samples.columns()) text += "," + csv::cell(name);
  text += '\n';
  for (std::uint64_t row = first; row < first + count; ++row) {
    text += std::to_string(row);
    for (std::size_t column = 0; column < columns; ++column) {
      text += ',';
      text += csv::cell(samples.text(row, column));
    }
    text += '\n';
  }
  return text;
}

}  // namespace wflow::steps
