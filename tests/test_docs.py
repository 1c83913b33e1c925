"""Everything that a user can say is explained where a user would look."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from effaudit import catalogue, plugins
from effaudit.cli import app

ROOT = Path(__file__).parents[1]


def commands(of: Any = None, path: str = "effaudit") -> Iterator[tuple[str, Any]]:
    """Every command with its path, groups too."""
    command = typer.main.get_command(app) if of is None else of
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands())


def test_every_command_says_what_it_does() -> None:
    for path, command in COMMANDS.items():
        summary = command.get_short_help_str(limit=200)
        assert summary.endswith("."), path
        assert len(summary) <= 65 or path == "effaudit", path  # so that `--help` shows it uncut


def test_every_option_and_argument_has_a_help_text() -> None:
    silent = [f"{path} {p.name}" for path, command in COMMANDS.items() for p in command.params if not p.help]
    assert silent == []


def test_profile_and_compare_have_the_options_of_the_contract() -> None:
    wanted = {"--model", "--weights", "--data", "--device", "--dtype", "--batch-size", "--limit", "--threads", "--seed"}
    wanted |= {"--meters", "--country", "--intensity", "--out", "--json", "--html", "--quiet"}
    for name in ("profile", "compare"):
        assert wanted <= {option for p in COMMANDS[f"effaudit {name}"].params for option in p.opts}


def test_every_plug_in_has_a_line_that_says_what_it_is() -> None:
    told = {
        f"{group}/{entry.name}": entry.summary for group in plugins.GROUPS for entry in catalogue.plugin_entries(group)
    }
    assert [name for name, summary in told.items() if len(summary) < 20] == []


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"^```\w*\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE))
SPANS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE))


def test_readme_names_every_plug_in() -> None:
    words = set(re.findall(r"\w+", " ".join([BLOCKS, *SPANS])))
    wanted = {name for group in plugins.GROUPS for name in plugins.names(group)}
    assert wanted - words == set()


def test_readme_names_every_command() -> None:
    leaves = [path for path, command in COMMANDS.items() if not hasattr(command, "commands")]
    code = " ".join([BLOCKS, *SPANS])
    assert [path for path in leaves if not re.search(rf"\b{path}\b", code)] == []


def test_commands_in_the_readme_exist() -> None:
    for line in re.findall(r"^(?:\$ )?(effaudit .*)$", BLOCKS, flags=re.MULTILINE):
        words = shlex.split(line, comments=True)
        path = " ".join(words[: 3 if words[1] == "baseline" else 2])
        known = {option for p in (*COMMANDS["effaudit"].params, *COMMANDS[path].params) for option in p.opts}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, line
