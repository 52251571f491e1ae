/* SPDX-License-Identifier: Apache-2.0 */
/* The driver and the module: there, missing, unusable. The test runs itself with the libraries of
 * fake_driver.c where the linker looks first. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cuda/module.h"

/* The directory of this program, and in it that of a kind of fake. */
static void path_of(const char *kind, const char *file, char out[1024])
{
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(n, 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(out, 1024, "%s/fake_%s/%s", self, kind, file);
}

/* What a process with this LD_LIBRARY_PATH prints: a line per GPU, or the error. */
static void run_with(const char *directory, char out[1024])
{
    int end[2], status;
    ck_assert_int_eq(pipe(end), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_LIBRARY_PATH", directory, 1);
        dup2(end[1], STDOUT_FILENO);
        close(end[0]);
        execl("/proc/self/exe", "cuda_module_test", "devices", (char *)NULL);
        _exit(9);
    }
    close(end[1]);
    size_t have = 0;
    for (ssize_t n; (n = read(end[0], out + have, 1023 - have)) > 0;)
        have += (size_t)n;
    out[have] = 0;
    close(end[0]);
    ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int print_devices(void)
{
    struct gpu_device device[1];
    struct error error = {0};
    int count = gpu_devices(device, 1, &error); /* fewer places than devices */
    if (count < 0)
        printf("%s: %s", error_name(error.code), error.text);
    else
        printf("%d: %s, %llu, %u.%u", count, device[0].name,
               (unsigned long long)device[0].memory_bytes, device[0].major, device[0].minor);
    return 0;
}

START_TEST(driver)
{
    char directory[1024], out[1024];
    path_of("good", "", directory);
    run_with(directory, out);
    ck_assert_str_eq(out, "2: Fake GPU 0, 8589934592, 7.5");
    path_of("old", "", directory);
    run_with(directory, out);
    ck_assert_str_eq(out, "failed: the NVIDIA driver failed: cuInit: no CUDA-capable device is "
                          "detected (100)");
    path_of("nothing", "", directory);
    run_with(directory, out);
    ck_assert_str_eq(out, "failed: the NVIDIA driver cannot be used: libcuda.so.1 has no cuInit");
    path_of("part", "", directory); /* there, but a library that it needs is not */
    run_with(directory, out);
    ck_assert_str_eq(out,
                     "failed: the NVIDIA driver cannot be loaded: libcuda_fake_needed.so: cannot "
                     "open shared object file: No such file or directory");
}
END_TEST

START_TEST(no_driver)
{
    char out[1024];
    if (dlopen(GPU_DRIVER, RTLD_NOW)) {
        printf("SKIP cuda_module_test no_driver: this machine has a driver\n");
        return;
    }
    run_with("", out);
    ck_assert_str_eq(out, "not_found: no NVIDIA driver: libcuda.so.1 not found");
}
END_TEST

static void check_module(const char *file, const char *text)
{
    struct error error = {0};
    ck_assert_ptr_null(gpu_module_open(file, &error));
    ck_assert_msg(strstr(error.text, text) != NULL, "%s", error.text);
}

static void check_version(const char *file, unsigned interface, unsigned arithmetic)
{
    char text[120];
    snprintf(text, sizeof text,
             "is of another version (interface %u, arithmetic %u; expected %u and %u)", interface,
             arithmetic, GPU_INTERFACE, KERNEL_ARITHMETIC);
    check_module(file, text);
}

START_TEST(module)
{
    char file[1024];
    struct error error;
    path_of("good", GPU_DRIVER, file);
    const struct gpu_kernels *k = gpu_module_open(file, &error);
    ck_assert_msg(k != NULL, "%s", error.text);
    ck_assert_uint_eq(k->interface, GPU_INTERFACE);
    path_of("old", GPU_DRIVER, file);
    check_version(file, GPU_INTERFACE + 1, KERNEL_ARITHMETIC);
    path_of("other", GPU_DRIVER, file);
    check_version(file, GPU_INTERFACE, KERNEL_ARITHMETIC + 1);
    path_of("part", GPU_DRIVER, file);
    check_module(file, "the CUDA module cannot be loaded: libcuda_fake_needed.so: cannot open");
    path_of("nothing", GPU_DRIVER, file);
    check_module(file, "is no CUDA module of sluice");
    check_module("/nowhere/" GPU_MODULE,
                 "no CUDA module: /nowhere/libsluice_cuda.so does not exist (built without nvcc)");
    check_module("/proc/self/maps", "the CUDA module cannot be loaded: ");
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "devices") == 0)
        return print_devices();
    Suite *suite = suite_create("cuda_module");
    TCase *c = tcase_create("module");
    tcase_add_test(c, driver);
    tcase_add_test(c, no_driver);
    tcase_add_test(c, module);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
