// SPDX-License-Identifier: Apache-2.0
#include "cli/top/render.h"

#include <fmt/format.h>
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/view/terminal.h"

// Makes ncurses define functions instead of macros with names like move, clear and timeout.
#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <ncurses.h>

namespace wflow::cli::top {

namespace {

constexpr int kEscapeDelay_ms = 25;

volatile std::sig_atomic_t ending = 0;

void note_end(int) {
  ending = 1;
}

// ncurses does not change signals that already have a handler.
void watch_signals() {
  struct sigaction action {};
  action.sa_handler = note_end;
  ::sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
}

constexpr short colour_of(Ink ink) {
  switch (ink) {
    case Ink::good:
      return COLOR_GREEN;
    case Ink::bad:
      return COLOR_RED;
    case Ink::warning:
      return COLOR_YELLOW;
    case Ink::accent:
    case Ink::title:
      return COLOR_CYAN;
    case Ink::second:
      return COLOR_MAGENTA;
    default:
      return -1;
  }
}

attr_t attributes_of(Ink ink) {
  switch (ink) {
    case Ink::dim:
      return A_DIM;
    case Ink::bold:
    case Ink::title:
    case Ink::bad:
      return A_BOLD;
    case Ink::selected:
      return A_REVERSE;
    default:
      return A_NORMAL;
  }
}

std::optional<Key> key_of(int code) {
  switch (code) {
    case KEY_UP:
      return kKeyUp;
    case KEY_DOWN:
      return kKeyDown;
    case KEY_LEFT:
      return kKeyLeft;
    case KEY_RIGHT:
      return kKeyRight;
    case KEY_PPAGE:
      return kKeyPageUp;
    case KEY_NPAGE:
      return kKeyPageDown;
    case KEY_HOME:
      return kKeyHome;
    case KEY_END:
      return kKeyEnd;
    case KEY_ENTER:
      return kKeyEnter;
    case KEY_BACKSPACE:
      return kKeyBackspace;
    default:
      return std::nullopt;
  }
}

Key key_of_character(wint_t character) {
  switch (character) {
    case '\r':
    case '\n':
      return kKeyEnter;
    case '\t':
      return kKeyTab;
    case 27:
      return kKeyEscape;
    case 8:
    case 127:
      return kKeyBackspace;
    default:
      return static_cast<Key>(character);
  }
}

}  // namespace

Screen::Screen() {
  std::setlocale(LC_ALL, "");
  charset_ = std::string_view(::nl_langinfo(CODESET)) == "UTF-8" ? Charset::utf8 : Charset::ascii;
  watch_signals();
  open_raw_output();
  if (::newterm(nullptr, stdout, stdin) == nullptr) {
    const char* kind = std::getenv("TERM");
    throw Error(ExitCode::usage,
                fmt::format("the terminal {} can't show a dashboard; wflow status shows the same as text",
                            kind != nullptr ? kind : "without a name (TERM)"));
  }
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, true);
  ::nodelay(stdscr, true);
  ::curs_set(0);
  ::set_escdelay(kEscapeDelay_ms);
  const char* none = std::getenv("NO_COLOR");
  colour_ = ::has_colors() && (none == nullptr || *none == '\0');
  if (!colour_) return;
  ::start_color();
  ::use_default_colors();
  for (std::size_t ink = 0; ink < kInks; ++ink) {
    if (const short colour = colour_of(static_cast<Ink>(ink)); colour >= 0)
      ::init_pair(static_cast<short>(ink + 1), colour, -1);
  }
}

Screen::~Screen() {
  ::endwin();
}

std::pair<int, int> Screen::size() {
  // ncurses learns of another size by SIGWINCH, which the program that started this one may have blocked.
  winsize now{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &now) == 0 && now.ws_row > 0 && now.ws_col > 0 &&
      ::is_term_resized(now.ws_row, now.ws_col))
    ::resizeterm(now.ws_row, now.ws_col);
  return {getmaxx(stdscr), getmaxy(stdscr)};
}

bool Screen::show(const Grid& grid) {
  const bool resized = grid.width() != shown_.width() || grid.height() != shown_.height();
  if (resized) ::clear();
  // ncurses does not write again what a signal interrupts, such as that of the next size of a window that is
  // being pulled: the picture after a resize is written whole, too.
  if (std::exchange(repaints_, resized)) ::redrawwin(stdscr);
  for (int row = 0; row < grid.height(); ++row) {
    for (int column = 0; column < grid.width(); ++column) {
      const Cell& cell = grid.at(row, column);
      if (cell.text.empty()) continue;
      // The neighbour overwrites the half of a wide character that is gone.
      if (!resized && cell == shown_.at(row, column)) continue;
      const short colour =
          colour_ && colour_of(cell.ink) >= 0 ? static_cast<short>(static_cast<int>(cell.ink) + 1) : 0;
      ::attr_set(attributes_of(cell.ink), colour, nullptr);
      ::mvaddstr(row, column, cell.text.c_str());
    }
  }
  ::refresh();
  shown_ = grid;
  return resized;
}

std::optional<Key> Screen::key() {
  for (;;) {
    wint_t character = 0;
    const int kind = ::get_wch(&character);
    if (kind == ERR) return std::nullopt;
    if (kind == OK) return key_of_character(character);
    if (const auto key = key_of(static_cast<int>(character))) return key;
  }
}

bool Screen::asked_to_end() {
  return ending != 0;
}

}  // namespace wflow::cli::top
