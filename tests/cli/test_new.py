import ast

import pytest

from opsmith.cli import new


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [("my_op", "my_ops", "my_op"), ("bev::pool", "bev", "pool"), ("a1::B2", "a1", "B2")],
)
def test_a_name_may_have_a_namespace(text, namespace, name):
    assert new.parse_name(text) == new.OperatorName(namespace, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("my-op", "'my-op' is not an identifier: a letter, then letters, digits and underscores; "
         "'my_op' would do"),
        ("ns::2x", "'2x' in 'ns::2x' is not an identifier: a letter, then letters, digits and "
         "underscores; 'x' would do"),
        ("größe", "'größe' is not an identifier: a letter, then letters, digits and underscores; "
         "'gr_e' would do"),
        ("", "'' is not an identifier: a letter, then letters, digits and underscores"),
        ("a::b::c", "'a::b::c' has 3 parts; write NAME or NAMESPACE::NAME"),
        ("lambda", "'lambda' is a keyword of Python; choose another name"),
        ("ns::double", "'double' in 'ns::double' is a keyword of C++; choose another name"),
        ("a__b", "'a__b' has two underscores in a row, which C++ reserves"),
        ("aten::mine", "the namespace 'aten' belongs to others; choose one of your own"),
        ("my_ops", "'my_ops' is the namespace that a bare name gets; write NAMESPACE::my_ops"),
        ("pool::pool", "in 'pool::pool' the namespace and the operator have one name, which in C++ "
         "is a namespace and a function of the same name; choose two"),
    ],
)  # fmt: skip
def test_a_bad_name_is_refused_with_the_reason(text, message):
    with pytest.raises(new.NewError) as raised:
        new.parse_name(text)
    assert str(raised.value) == message


@pytest.mark.slow
def test_the_folder_holds_a_declaration_a_kernel_a_test_and_a_readme(cli, tmp_path):
    outcome = cli("new", "shapes::my_op", "--dir", tmp_path)
    assert outcome.code == 0
    folder = tmp_path / "my_op"
    files = sorted(path.name for path in folder.iterdir())
    assert files == [
        *(".clangd", ".gitignore", "README.md", "compile_commands.json"),
        *("my_op.cpp", "my_op.py", "test_my_op.py"),
    ]
    assert outcome.stdout.splitlines() == [str(folder / file) for file in files]
    for file in ("my_op.py", "test_my_op.py"):
        ast.parse((folder / file).read_text())
    assert "OPSMITH_KERNEL(shapes, my_op, cpu" in (folder / "my_op.cpp").read_text()


@pytest.mark.slow
def test_without_a_compiler_the_operator_is_written_all_the_same(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = cli("new", "lonely::my_op", "--dir", tmp_path)
    assert outcome.code == 0
    assert not (tmp_path / "my_op" / "compile_commands.json").exists()
    assert "No compile_commands.json for editors: " in outcome.stderr
    assert "needs a C++ compiler, and none is on the PATH" in outcome.stderr


def test_an_existing_folder_is_left_alone(cli, tmp_path):
    (tmp_path / "my_op").mkdir()
    outcome = cli("new", "my_op", "--dir", tmp_path)
    assert outcome.code == 2
    assert outcome.stderr == f"error: {tmp_path / 'my_op'} exists already; nothing was written\n"
    assert list((tmp_path / "my_op").iterdir()) == []


def test_a_file_where_the_folder_should_be_is_named(cli, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = cli("new", "my_op", "--dir", tmp_path / "file")
    assert outcome.code == 2
    assert outcome.stderr == f"error: cannot make {tmp_path / 'file/my_op'}: Not a directory\n"


def test_a_package_is_written_that_becomes_a_wheel(cli, tmp_path):
    from opsmith.wheels import project
    from opsmith.wheels.building import choose
    from opsmith.wheels.platforms import find_platform

    outcome = cli("new", "--package", "road_ops", "--dir", tmp_path)
    assert outcome.code == 0
    folder = tmp_path / "road_ops"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [
        ".github/workflows/wheels.yml",
        "README.md",
        "pyproject.toml",
        "src/road_ops/__init__.py",
        "src/road_ops/scale_rows.cpp",
        "src/road_ops/scale_rows.py",
        "tests/test_scale_rows.py",
    ]
    found = project.read(folder)
    assert [operator.name for operator in found.operators] == ["road_ops::scale_rows"]
    carried, left_out = choose(found, find_platform("native"))
    assert ([kernel.path.name for kernel in carried], left_out) == (["scale_rows.cpp"], [])
    assert b"Name: road-ops" in found.about()["METADATA"]


def test_a_package_may_name_its_operator(cli, tmp_path):
    assert cli("new", "--package", "road::pool", "--dir", tmp_path).code == 0
    assert (tmp_path / "road" / "src" / "road" / "pool.cpp").is_file()
    outcome = cli("new", "--package", "torch", "--dir", tmp_path)
    assert outcome.stderr == (
        "error: the namespace 'torch' belongs to others; choose one of your own\n"
    )
