"""Plants one finding of each kind and expects check_hygiene to name it."""

import pathlib
import subprocess
import tempfile
import unittest

import check_hygiene


class CheckHygieneTest(unittest.TestCase):
    def findings_in(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "file.md").write_text(text)
            return check_hygiene.findings(root, ["file.md"])

    def test_ordinary_text_passes(self):
        for text in (
            "see build/release and /proc/self/stat\n",
            # Put together, so that no other search takes it for a path.
            "https://example.org/home/page, $HOME/{0}/x and ~/{0}/y\n".format(
                "work"
            ),
            "pip reads its own configuration\n",
        ):
            self.assertEqual(self.findings_in(text), [], text)

    def test_each_planted_finding_is_named(self):
        # Put together here, so that this file itself passes the check.
        for folder in ("home", "root", "work"):
            found = self.findings_in(f"model: /{folder}/me/model.gguf\n")
            self.assertEqual(len(found), 1, folder)
            self.assertIn("machine path", found[0])
        for host in (("pypi", "org"), ("deb.debian", "org"), ("crates", "io")):
            found = self.findings_in(f"https://{'.'.join(host)}/simple\n")
            self.assertEqual(len(found), 1, host)
            self.assertIn("registry host", found[0])

    def test_large_file_is_named(self):
        found = self.findings_in("x" * (check_hygiene.MAX_FILE_BYTES + 1))
        self.assertEqual(len(found), 1)

    def test_reads_tracked_files_only(self):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            subprocess.run(["git", "init", "-q", directory], check=True)
            (root / "tracked").write_text("")
            (root / "scratch").write_text("")
            subprocess.run(["git", "add", "tracked"], cwd=root, check=True)
            self.assertEqual(check_hygiene.tracked_files(root), ["tracked"])


if __name__ == "__main__":
    unittest.main()
