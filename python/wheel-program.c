/* wheel-program.c: the program of a wheel, whose code is the library's beside it. */
int amptrain_main(int argc, char **argv);
void amptrain_hold(void);

__attribute__((section(".preinit_array"), used)) static void (*const hold)(void) = amptrain_hold;

int main(int argc, char **argv)
{
    return amptrain_main(argc, argv);
}
