/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whose fault errors of reads are, with the errors that the kernel reports. */
#include "lib/io/read_errors.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/bytes.h"

START_TEST(every_error_has_one_fault)
{
    static const struct {
        int number;
        enum read_fault fault;
        int reported;
    } rows[] = {
        {EFAULT, READ_FAULT_MEMORY, ENOSPC},  {ENOMEM, READ_FAULT_MEMORY, ENOMEM},
        {ENOBUFS, READ_FAULT_MEMORY, ENOMEM}, {EAGAIN, READ_FAULT_AGAIN, EAGAIN},
        {EINTR, READ_FAULT_AGAIN, EINTR},     {EBUSY, READ_FAULT_AGAIN, EBUSY},
        {ECANCELED, READ_FAULT_AGAIN, EINTR}, {EIO, READ_FAULT_STORAGE, EIO},
        {EINVAL, READ_FAULT_STORAGE, EINVAL}, {ENODATA, READ_FAULT_STORAGE, ENODATA},
        {ENXIO, READ_FAULT_STORAGE, ENXIO},   {EREMOTEIO, READ_FAULT_STORAGE, EREMOTEIO},
        {ENOSPC, READ_FAULT_STORAGE, EIO},    {EBADMSG, READ_FAULT_STORAGE, EIO},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ck_assert_int_eq(read_fault_of(rows[i].number), rows[i].fault);
        ck_assert_int_eq(read_error_reported(rows[i].number), rows[i].reported);
        ck_assert_int_eq(read_reported_memory(rows[i].reported),
                         rows[i].fault == READ_FAULT_MEMORY);
    }
}
END_TEST

/* What the kernel reports when the page to be filled cannot be made: here one after the end of its
 * file. */
START_TEST(a_page_that_cannot_be_made)
{
    char zero[] = "/tmp/sluice-read-errors-XXXXXX";
    int from = mkstemp(zero), to = memfd_create("page", MFD_CLOEXEC);
    unlink(zero);
    ck_assert(from >= 0 && to >= 0);
    ck_assert_int_eq(ftruncate(from, 2 * PAGE_BYTES), 0);
    char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
    ck_assert_ptr_ne(page, MAP_FAILED);
    ck_assert_int_eq(pread(from, page, PAGE_BYTES, 0), -1);
    ck_assert_int_eq(read_fault_of(errno), READ_FAULT_MEMORY);
    munmap(page, PAGE_BYTES);
    close(from);
    close(to);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("read_errors");
    TCase *tests = tcase_create("read_errors");
    tcase_add_test(tests, every_error_has_one_fault);
    tcase_add_test(tests, a_page_that_cannot_be_made);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
