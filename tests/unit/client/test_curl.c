/* SPDX-License-Identifier: MIT
 *
 * test_curl.c: libcurl is loaded when it is needed. Compiled a second time with a name that no library has, it is
 * missing, and the message says what to install.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "client/curl.h"

#ifdef CURL_SONAME

static void test_missing_library_is_named(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* the second time too */
        struct qn_error e = {0};
        assert_null(curl_load(&e));
        assert_int_equal(e.code, QN_EUNSUP);
        assert_non_null(strstr(e.msg, "libcurl4"));
        assert_non_null(strstr(e.msg, CURL_SONAME));
    }
    assert_null(curl_load(NULL));
}

#else

static void test_loaded_once(void **state)
{
    struct qn_error e = {0};
    const struct curl *curl = curl_load(&e);
    CURL *h;
    (void)state;
    assert_non_null(curl);
    assert_ptr_equal(curl_load(NULL), curl);
    h = curl->easy_init();
    assert_non_null(h);
    assert_int_equal(curl->easy_setopt(h, CURLOPT_URL, "file:///dev/null"), CURLE_OK);
    assert_int_equal(curl->easy_perform(h), CURLE_OK);
    curl->easy_cleanup(h);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef CURL_SONAME
        cmocka_unit_test(test_missing_library_is_named),
#else
        cmocka_unit_test(test_loaded_once),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
