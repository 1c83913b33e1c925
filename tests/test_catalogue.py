from effaudit import catalogue, plugins
from effaudit.profile_spec import builtin_profiles


def test_a_variant_tells_its_tasks_and_its_first_line() -> None:
    found = {entry.name: entry for entry in catalogue.plugin_entries("variants")}
    assert found["budgetformer"].tasks == ("classification",)
    assert found["dense"].summary == "The reference: every head, every layer, every token."


def test_what_is_told_without_importing_is_what_the_module_says() -> None:
    for group in plugins.GROUPS:
        for entry in catalogue.plugin_entries(group):
            module = plugins.load(group, entry.name)
            assert module.__doc__ is not None
            assert module.__doc__.splitlines()[0].endswith(entry.summary)
            assert entry.tasks == getattr(module, "TASKS", ())


def test_built_in_profiles_say_what_they_are_for() -> None:
    found = catalogue.profile_entries()
    assert [entry.name for entry in found] == list(builtin_profiles())
    assert all(entry.summary for entry in found)
