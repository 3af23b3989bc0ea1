from tests.gpu.own_process import run_tests


def test_the_triton_kernel_equals_the_reference_in_the_interpreter():
    run_tests("interpreted", TRITON_INTERPRET="1")
