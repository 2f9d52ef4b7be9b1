"""Which backend carries a command out, what is said where none does, and the remedies."""

import errno

import pytest

from paddock.errors import SandboxUnavailableError
from paddock.sandbox.backends import UNCONFINED_GAPS, choose_backend
from paddock.sandbox.canary import HostSwitches, RemedyExplanation, Step, Symptom, explain
from paddock.sandbox.values import BackendVerdict, Enforced, Enforcement

STAGE = BackendVerdict("stage", Enforcement.FULL)
LANDLOCK = BackendVerdict("landlock", Enforcement.PARTIAL, ("a gap",))
NO_STAGE = BackendVerdict(
    "stage", Enforcement.NONE, cause="AppArmor forbids it", remedy="sysctl -w x=0"
)
NO_LANDLOCK = BackendVerdict("landlock", Enforcement.NONE, cause="the kernel has no Landlock")


def test_the_strongest_that_works_is_chosen_whatever_the_order():
    for verdicts in ([STAGE, LANDLOCK], [LANDLOCK, STAGE]):
        assert choose_backend(verdicts, "required") == Enforced("stage", Enforcement.FULL)


@pytest.mark.parametrize("enforcement", ["required", "best-effort"])
def test_a_partial_backend_says_its_gaps(enforcement):
    found = choose_backend([NO_STAGE, LANDLOCK], enforcement)
    assert found == Enforced("landlock", Enforcement.PARTIAL, ("a gap",))


def test_without_a_backend_required_refuses_and_says_what_to_do():
    with pytest.raises(SandboxUnavailableError) as refused:
        choose_backend([NO_STAGE, NO_LANDLOCK], "required")
    assert refused.value.code == "sandbox.unavailable"
    assert refused.value.message == (
        "this host cannot enforce the policy on a command"
        " (stage: AppArmor forbids it; landlock: the kernel has no Landlock)"
    )
    assert refused.value.hint == "sysctl -w x=0; run paddock doctor for details"


def test_without_a_backend_best_effort_runs_and_says_that_nothing_is_held():
    assert choose_backend([NO_STAGE], "best-effort") == Enforced(
        "none", Enforcement.NONE, UNCONFINED_GAPS
    )


def test_nothing_tried_is_nothing_that_works():
    with pytest.raises(SandboxUnavailableError):
        choose_backend([], "required")


@pytest.mark.parametrize("enforcement", ["required", "best-effort"])
@pytest.mark.parametrize("verdicts", [[LANDLOCK], [NO_LANDLOCK], []])
def test_a_backend_that_failed_for_the_moment_is_not_replaced_by_a_weaker_one(
    enforcement, verdicts
):
    busy = BackendVerdict(
        "stage", Enforcement.NONE, cause="too many processes", remedy="again", is_passing=True
    )

    with pytest.raises(SandboxUnavailableError) as refused:
        choose_backend([busy, *verdicts], enforcement)
    assert refused.value.message == "the sandbox failed just now: stage: too many processes"
    assert refused.value.hint == "again"


@pytest.mark.parametrize(
    ("symptom", "switches", "remedy"),
    [
        (
            Symptom(Step.MOUNTS, errno.EACCES),
            HostSwitches(apparmor_restricts="1"),
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.EPERM),
            HostSwitches(userns_clone="0"),
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.ENOSPC),
            HostSwitches(user_namespaces_max="0"),
            "user.max_user_namespaces=15000",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.ENOSPC),
            HostSwitches(user_namespaces_max="96365"),
            "to more than 96365",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.EPERM),
            HostSwitches(has_own_filter=True, apparmor_restricts="0", userns_clone="1"),
            "--security-opt seccomp=unconfined",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.EINVAL),
            HostSwitches(has_command_users=False),
            "as the unprivileged owner of the workspace",
        ),
        (
            Symptom(Step.USER_NAMESPACE, errno.EINVAL),
            HostSwitches(has_command_users=False, user_namespaces_max="0"),
            "user.max_user_namespaces=15000",
        ),
        (Symptom(Step.USER_NAMESPACE, errno.EINVAL), HostSwitches(), "CONFIG_USER_NS"),
        (Symptom(Step.USER_NAMESPACE, errno.EIO), HostSwitches(), "allow this user"),
        (Symptom(Step.OVERLAY, errno.EINVAL), HostSwitches(), "another file system"),
        (Symptom(Step.OVERLAY, errno.EIO), HostSwitches(), "a local file system"),
        (Symptom(Step.IDENTITY_MAP, errno.EINVAL), HostSwitches(), "as the user who owns"),
        (Symptom(Step.LANDLOCK, errno.ENOSYS), HostSwitches(), "CONFIG_SECURITY_LANDLOCK"),
        (
            Symptom(Step.LANDLOCK, errno.EOPNOTSUPP),
            HostSwitches(security_modules="lockdown,yama"),
            "boot with lsm=landlock,lockdown,yama",
        ),
        (Symptom(Step.LANDLOCK, errno.EPERM), HostSwitches(), "seccomp profile"),
        (Symptom(Step.SECCOMP, errno.ENOSYS), HostSwitches(), "CONFIG_SECCOMP_FILTER"),
    ],
)
def test_each_symptom_has_its_remedy(symptom, switches, remedy):
    said = explain(symptom, switches)
    assert isinstance(said, RemedyExplanation)
    assert remedy in said.remedy
    assert said.cause


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("code", [0, errno.EPERM, errno.ENOSYS, 9999])
def test_every_symptom_is_explained(step, code):
    said = explain(Symptom(step, code), HostSwitches())
    assert said.cause
    assert said.remedy
