#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of a terminal's screen (scripts/terminal_svg.py): what tmux prints, and where it stands in the picture."""
import pathlib
import sys
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import terminal_svg

SVG = "{http://www.w3.org/2000/svg}"


class TerminalSvg(unittest.TestCase):
    def texts(self, screen, palette=terminal_svg.LIGHT):
        """[(text, row, column, attributes)] of the picture."""
        found = []
        for node in xml.fromstring(terminal_svg.svg(screen, 40, palette)).iter(f"{SVG}text"):
            row = (float(node.get("y")) - terminal_svg.MARGIN - 14) / terminal_svg.CELL_HEIGHT
            column = (float(node.get("x")) - terminal_svg.MARGIN) / terminal_svg.CELL_WIDTH
            found.append((node.text.replace(terminal_svg.NO_BREAK_SPACE, " "), round(row), round(column), node.attrib))
        return found

    def test_text_stands_in_its_cells(self):
        found = self.texts("two\n\n  \x1b[1mthree\x1b[0m four\n")
        self.assertEqual([entry[:3] for entry in found], [("two", 0, 0), ("three", 2, 2), (" four", 2, 7)])
        self.assertEqual([entry[3].get("font-weight") for entry in found], [None, "bold", None])
        self.assertAlmostEqual(float(found[1][3]["textLength"]), 5 * terminal_svg.CELL_WIDTH, places=1)

    def test_colours_are_those_of_the_palette_and_last_over_lines(self):
        for palette in (terminal_svg.LIGHT, terminal_svg.DARK):
            found = self.texts("\x1b[31mred\nstill \x1b[39mplain \x1b[92mgreen", palette)
            self.assertEqual([entry[3]["fill"] for entry in found], [palette[2][1], palette[2][1], palette[1], palette[2][2]])

    def test_reverse_video_is_a_box_behind_the_text(self):
        picture = terminal_svg.svg("\x1b[7mhead \x1b[27mtail", 20, terminal_svg.LIGHT)
        rectangles = list(xml.fromstring(picture).iter(f"{SVG}rect"))
        self.assertEqual(len(rectangles), 2)  # the screen's and the word's
        self.assertEqual(rectangles[1].get("fill"), terminal_svg.LIGHT[1])
        self.assertEqual(self.texts("\x1b[7mhead")[0][3]["fill"], terminal_svg.LIGHT[0])

    def test_colours_of_a_longer_table_leave_the_text_as_it_is(self):
        self.assertEqual(self.texts("\x1b[38;5;208mtext")[0][3]["fill"], terminal_svg.LIGHT[1])

    def test_marks_of_xml_are_escaped(self):
        self.assertEqual(self.texts("a < b & c")[0][0], "a < b & c")


if __name__ == "__main__":
    unittest.main()
