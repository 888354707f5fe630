/* unit.h: cmocka and what it asks for. Behind all other headers: it has a macro called fail. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
