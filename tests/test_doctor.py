"""The doctor sees each trouble, says what to do about it, and calls only hopeless machines unusable."""

import json
from importlib.metadata import PackageNotFoundError

import pytest

from course_lib import doctor
from course_lib.doctor import Row, usable
from course_lib.fetch import ROOT, seal


@pytest.mark.parametrize(
    "row, status, remedy",
    [
        (doctor.python_row((3, 11, 0)), "ok", ""),
        (doctor.python_row((3, 10, 14)), "fail", "install Python 3.11"),
        (doctor.python_row((4, 0, 0)), "ok", ""),
        (doctor.memory_row(8.0), "ok", ""),
        (doctor.memory_row(3.0), "warn", "one notebook"),
        (doctor.memory_row(0.5), "fail", "close programs"),
        (doctor.disk_row(50.0), "ok", ""),
        (doctor.disk_row(0.2), "fail", "make room"),
        (doctor.threads_row(8, None), "ok", ""),
        (doctor.threads_row(8, "8"), "ok", ""),
        (doctor.threads_row(8, "2"), "warn", "use all cores"),
        (doctor.threads_row(2, "16"), "warn", "share a core"),
        (doctor.threads_row(2, "many"), "warn", "unset"),
        (doctor.gpu_row(True, "NVIDIA H100 (1 seen)", "2.13.0"), "ok", ""),
        (doctor.gpu_row(True, None, "2.13.0+cpu"), "warn", "torch build"),
        (doctor.gpu_row(False, None, "2.13.0+cpu"), "ok", ""),
        (doctor.gpu_row(False, None, None), "ok", ""),
        (doctor.kernel_row(True, True), "ok", ""),
        (doctor.kernel_row(True, False), "ok", ""),
        (doctor.kernel_row(False, True), "fail", "pip install"),
    ],
)
def test_each_condition_has_its_status_and_remedy(row, status, remedy):
    assert row.status == status and remedy in row.remedy
    assert bool(row.remedy) == (status != "ok"), "trouble needs a remedy, and only trouble"


def version_of(**installed):
    def version(name):
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    return version


def test_packages_are_held_against_requirements():
    requirements = "# heading\ntorch>=2.6  # why\n\nnumpy>=2.0\npandas>=2.2\n"
    rows = doctor.package_rows(requirements, version_of(torch="2.13.0+cpu", numpy="1.26.4"))
    assert rows == [
        Row("packages", "ok", "1 as requirements.txt asks"),
        Row("numpy", "fail", "1.26.4 (needs >=2.0)", doctor.INSTALL),
        Row("pandas", "fail", "missing (needs >=2.2)", doctor.INSTALL),
    ]


def test_a_prerelease_counts():
    assert usable(doctor.package_rows("torch>=2.6", version_of(torch="2.14.0.dev20261101")))


def test_the_pinned_versions_meet_the_requirements():
    pins = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split())
    pins = {name.replace("_", "-").lower(): version for name, version in pins.items()}
    assert usable(doctor.package_rows((ROOT / "requirements.txt").read_text(), version_of(**pins)))


def test_a_missing_model_matters_to_the_small_pair_only(tmp_path):
    target, draft = tmp_path / "target", tmp_path / "draft"
    row = doctor.model_row(target, draft, "smol")
    assert row.status == "fail" and row.remedy == "python -m course_lib fetch"
    assert doctor.model_row(target, draft, "h100").status == "warn"
    for folder in (target, draft):
        folder.mkdir()
        assert doctor.model_row(target, draft, "smol").status == "fail"
        (folder / "model.safetensors").write_text("weights")
        seal(folder)
    assert doctor.model_row(target, draft, "smol").status == "ok"
    (draft / "model.safetensors").write_text("weig")  # truncated
    assert "draft missing or damaged" in doctor.model_row(target, draft, "smol").found


def test_warnings_do_not_make_a_machine_unusable():
    assert usable([Row("a", "ok", ""), Row("b", "warn", "", "x")])
    assert not usable([Row("a", "ok", ""), Row("b", "fail", "", "x")])


def test_this_machine_is_examined_and_the_rows_are_json():
    rows = doctor.examine()
    json.dumps([row._asdict() for row in rows])
    asked = {"Python", "packages", "memory", "disk", "threads", "GPU", "model", "Jupyter kernel"}
    assert asked <= {row.check for row in rows}
