/* SPDX-License-Identifier: MIT
 *
 * page.h: the page for browsers. tools/make-page makes it from page.html during the build.
 */
#ifndef QUERN_SERVER_PAGE_H
#define QUERN_SERVER_PAGE_H

#include <stddef.h>

extern const unsigned char page_gzip[]; /* [page_gzip_bytes] the page, compressed: RFC 1952 */
extern const size_t page_gzip_bytes;
/* Its Content-Security-Policy: only the page's own script and style, by their SHA-256, and requests to its own server.
 */
extern const char page_policy[];

#endif
