// SPDX-License-Identifier: Apache-2.0
// Takes out of texts what says where and by whom they were made, for reports that leave the site.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/data.h"

namespace wflow::cli::report {

class Redactor {
 public:
  // Each word is replaced where it stands by itself: names of workers, hosts and users.
  void replace(const std::string& word, const std::string& with);
  // And absolute paths and IP addresses, which need no list.
  std::string operator()(std::string_view text) const;

 private:
  std::string without_words(std::string_view text) const;
  std::map<std::size_t, std::map<std::string, std::string, std::less<>>, std::greater<>> words_;  // by length
};

// All that the campaign and this machine know of.
Redactor redactor_for(const ReportData& data);

}  // namespace wflow::cli::report
